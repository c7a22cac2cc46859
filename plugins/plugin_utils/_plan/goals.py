# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes one division of a host better than another.

The goals, each of which counts only where all before it are equal:

1. No CPU is in two pools.
2. The smallest pool has no fewer CPUs than the published rule gives, because the NPUs of one job wait for the slowest.
3. Few remote CPUs, each weighted by its NUMA distance.
4. Whole cores.
5. Pools of equal size within a group.
6. No moves against the plan in force.

What a plan must never break has its place in :mod:`_plan.invariants`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.invariants import shared
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


class Score(NamedTuple):
    """How far a division is from each goal; the lowest score is the best. ``moved`` counts cards."""

    overlap: int
    shortfall: int
    remote: int
    split: int
    uneven: int
    moved: int


def score(groups: Groups, pools: Mapping[Card, int], floor: int = 0) -> Score:
    """Return the score of pools, as masks. ``floor`` is the smallest pool of the published rule."""
    machine = groups.machine
    sizes = {card: cpus.bit_count() for card, cpus in pools.items()}
    spare = [machine.cores(machine.other_threads(cpus)) for cpus in pools.values()] if machine.threads else []
    uneven = 0
    for cards in groups.alike.values():
        of_group = [sizes[card] for card in cards if card in sizes]
        uneven += max(of_group, default=0) - min(of_group, default=0)
    return Score(
        sum(sizes.values()) - union(pools.values()).bit_count(),
        max(0, floor - min(sizes.values(), default=0)),
        sum(count * distance for count, distance in remote(groups, pools)),
        sum(map(int.bit_count, spare)),
        uneven,
        sum(pools[card] != cpus for card, cpus in machine.in_force.items() if card in pools),
    )


def remote(groups: Groups, pools: Mapping[Card, int]) -> Iterator[tuple[int, int]]:
    """Yield numbers of remote CPUs with their distance; none for cards whose NUMA node is not known."""
    nodes = groups.machine.nodes
    for card, cpus in pools.items():
        if card.numa is None or card.numa not in nodes or not (far := cpus & ~groups.local[card.numa]):
            continue
        for node in nodes.values():
            if on_node := far & node.cpus:
                yield on_node.bit_count(), groups.machine.distance(card.numa, node.id)


def smallest_share(pools: Mapping[Card, int], cards: Collection[Card]) -> int:
    """Return what the smallest pool is worth, where a CPU of several pools is worth a part to each; 0 where a card has no pool."""
    if not all(pools.get(card) for card in cards):
        return 0
    worth: dict[Card, float] = {card: cpus.bit_count() for card, cpus in pools.items()}
    for cpus, users in shared(pools):
        for card in users:
            worth[card] -= cpus.bit_count() * (1 - 1 / len(users))
    return min((int(worth[card] + 1e-9) for card in cards), default=0)
