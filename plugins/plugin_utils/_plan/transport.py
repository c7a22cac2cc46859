# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cheapest way to meet needs from supplies, in whole units."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

NEVER = 1 << 62


class Flow:
    """How many units every taker gets from every source, at the lowest total cost for what the takers have; ``costs`` are those of a
    unit, by taker and source.

    Needs can grow (:meth:`meet`). Every step serves a taker by the cheapest path, on which others may give up units of one source for
    units of another. That keeps the total the lowest (successive shortest paths). ``given`` are the units by taker and source. The same
    calls give the same of several cheapest results.
    """

    def __init__(self, supplies: Sequence[int], costs: Sequence[Sequence[int]]) -> None:
        self.costs, self.remaining = costs, list(supplies)
        self.has = [0] * len(costs)
        self.given = [[0] * len(supplies) for _taker in costs]
        self._users: list[set[int]] = [set() for _supply in supplies]
        self._of_takers, self._of_sources = [0] * len(costs), [0] * len(supplies)

    def copy(self) -> Flow:
        flow = Flow(self.remaining, self.costs)
        flow.has, flow.given, flow._users = self.has[:], [row[:] for row in self.given], [set(users) for users in self._users]
        flow._of_takers, flow._of_sources = self._of_takers[:], self._of_sources[:]
        return flow

    @property
    def cost(self) -> int:
        """The total cost."""
        return sum(sum(map(mul, row, costs)) for row, costs in zip(self.given, self.costs, strict=True))

    def meet(self, needs: Sequence[int]) -> bool:
        """Give every taker as many units as it needs in all. Return whether the supplies are enough; if they are not, nothing changes."""
        if sum(max(0, need - has) for need, has in zip(needs, self.has, strict=True)) > sum(self.remaining):
            return False
        for taker, need in enumerate(needs):
            for source, cost in enumerate(self.costs[taker]):
                if not cost and self.remaining[source] and (amount := min(self.remaining[source], need - self.has[taker])) > 0:
                    self._take(taker, source, amount)
            while (more := need - self.has[taker]) > 0:
                source, path = self._cheapest_path(taker)
                amount = min(more, self.remaining[source], *(self.given[other][lent] for other, lent in path))
                for other, lent in path:
                    self._take(other, source, amount)
                    self._take(other, lent, -amount)
                    source = lent
                self._take(taker, source, amount)
        return True

    def _take(self, taker: int, source: int, amount: int) -> None:
        self.has[taker] += amount
        self.remaining[source] -= amount
        self.given[taker][source] += amount
        if self.given[taker][source]:
            self._users[source].add(taker)
        else:
            self._users[source].discard(taker)

    def _cheapest_path(self, taker: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the source that has units left, and the takers that give up units of which source, from the last one on.

        Costs are looked at above ``_of_sources`` and ``_of_takers``, by which no step costs less than nothing (Dijkstra's search).
        """
        of_takers, of_sources, remaining = self._of_takers, self._of_sources, self.remaining
        reached = {taker: (0, -1)}
        above = of_takers[taker]
        far = [cost + above - base for cost, base in zip(self.costs[taker], of_sources, strict=True)]
        by = [taker] * len(far)
        open_to, settled = far[:], []
        while True:
            least = min(open_to)
            nearest = [source for source, distance in enumerate(open_to) if distance == least]
            end = next((source for source in nearest if remaining[source]), -1)
            if end >= 0:
                break
            settled += nearest
            for source in nearest:
                open_to[source] = NEVER
                for other in sorted(self._users[source] - reached.keys()):
                    reached[other] = least, source
                    above = least + of_takers[other]
                    for place, (cost, base) in enumerate(zip(self.costs[other], of_sources, strict=True)):
                        if cost + above - base < far[place]:
                            far[place] = open_to[place] = cost + above - base
                            by[place] = other
        for place in settled:
            of_sources[place] += far[place] - least
        for other, (distance, _source) in reached.items():
            of_takers[other] += distance - least
        return end, self._steps(by[end], reached, by)

    @staticmethod
    def _steps(place: int, reached: dict[int, tuple[int, int]], by: list[int]) -> list[tuple[int, int]]:
        path = []
        while (lent := reached[place][1]) >= 0:
            path.append((place, lent))
            place = by[lent]
        return path
