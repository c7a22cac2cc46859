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

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
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
    spare = [machine.cores(machine.whole_cores(machine.cores(cpus)) & machine.usable & ~cpus) for cpus in pools.values()]
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


def remote(groups: Groups, pools: Mapping[Card, int]) -> list[tuple[int, int]]:
    """Return numbers of remote CPUs with their distance; none for cards whose NUMA node is not known."""
    machine = groups.machine
    found = []
    for card, cpus in pools.items():
        far = cpus & ~groups.local[card.numa] if card.numa in machine.nodes else 0
        if far and card.numa is not None:
            counts = {node.id: (far & node.cpus).bit_count() for node in machine.nodes.values()}
            found += [(count, machine.distance(card.numa, node)) for node, count in counts.items() if count]
    return found


def smallest_share(pools: Mapping[Card, int], cards: Collection[Card]) -> int:
    """Return what the smallest pool is worth, where a CPU of several pools is worth a part to each; 0 where a card has no pool."""
    if not all(pools.get(card) for card in cards):
        return 0
    if sum(map(int.bit_count, pools.values())) == union(pools.values()).bit_count():
        return min((pools[card].bit_count() for card in cards), default=0)
    users: dict[int, int] = {}
    for cpus in pools.values():
        for cpu in cpus_of(cpus):
            users[cpu] = users.get(cpu, 0) + 1
    return min(int(sum(1 / users[cpu] for cpu in cpus_of(pools[card])) + 1e-9) for card in cards)
