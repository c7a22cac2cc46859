# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cheapest way to meet needs from supplies, in whole units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class _Step(NamedTuple):
    """A taker that gives up units of a source, because another one needs them."""

    taker: int
    source: int


def cheapest(needs: Sequence[int], supplies: Sequence[int], costs: Sequence[Sequence[int]]) -> list[list[int]] | None:
    """Return how many units every taker gets from every source, at the lowest total cost; None where all supplies are too few.

    ``costs`` are those of a unit, by taker and source. Every step serves a taker by the cheapest path, on which others may give up
    units of one source for units of another. That keeps the total the lowest for the takers served (successive shortest paths).
    The same input gives the same of several cheapest results.
    """
    if sum(needs) > sum(supplies):
        return None
    given = [[0] * len(supplies) for _need in needs]
    left = list(supplies)
    users: list[set[int]] = [set() for _supply in supplies]
    for taker, need in enumerate(needs):
        while need:
            path, source = _cheapest_path(taker, users, left, costs)
            amount = min(need, left[source], *(given[other][lent] for other, lent in path))
            left[source] -= amount
            need -= amount
            for other, lent in path:
                given[other][source] += amount
                given[other][lent] -= amount
                users[source].add(other)
                if not given[other][lent]:
                    users[lent].discard(other)
                source = lent
            given[taker][source] += amount
            users[source].add(taker)
    return given


def _cheapest_path(taker: int, users: list[set[int]], left: list[int], costs: Sequence[Sequence[int]]) -> tuple[list[_Step], int]:
    """Return the takers that give up units, from the last one on, and the source that has units left."""
    reached = {taker: 0}
    before: dict[int, tuple[int, _Step]] = {}
    best: tuple[int, int, int] | None = None
    todo = [taker]
    while todo:
        place = todo.pop(0)
        for source, each in enumerate(costs[place]):
            cost = reached[place] + each
            if left[source]:
                if best is None or cost < best[0]:
                    best = cost, place, source
                continue
            others = users[source]
            for other in sorted(others) if len(others) > 1 else others:
                if other not in reached or cost - costs[other][source] < reached[other]:
                    reached[other] = cost - costs[other][source]
                    before[other] = place, _Step(other, source)
                    if other not in todo:
                        todo.append(other)
        if best and not best[0]:
            break
    if best is None:
        raise ValueError(f"None of {len(left)} sources has units left")
    path = []
    _cost, place, source = best
    while place != taker:
        place, step = before[place]
        path.append(step)
    return path, source
