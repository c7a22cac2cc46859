# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes one division of a host better than another.

The goals, each of which counts only where all before it are equal:

1. No CPU is in two pools.
2. The smallest pool has no fewer CPUs than the published rule gives, because the NPUs of one job wait for the slowest.
3. The pools in force change by few CPUs, because work is running there.
4. Few remote CPUs, each weighted by its NUMA distance.
5. Whole cores.
6. A large smallest pool.
7. Few idle CPUs that are local to an NPU.
8. Pools of equal size within a group.

What a plan must never break has its place in :mod:`_plan.invariants`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.invariants import shared
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine


class Score(NamedTuple):
    """How far a division is from each goal; the lowest score is the best."""

    overlap: int
    shortfall: int
    moved: int
    remote: int
    split: int
    small: int
    idle: int
    uneven: int


def score(groups: Groups, pools: Mapping[Card, int], floor: int = 0) -> Score:
    """Return the score of pools, as masks. ``floor`` is the smallest pool of the published rule."""
    machine = groups.machine
    sizes = list(map(int.bit_count, pools.values()))
    given, smallest = union(pools.values()), min(sizes, default=0)
    kept = machine.in_force.items()
    return Score(
        sum(sizes) - given.bit_count(),
        max(0, floor - smallest),
        sum(((cpus ^ pools.get(card, 0)) & machine.usable & machine.divided).bit_count() for card, cpus in kept),
        sum(count * distance for count, distance in remote(groups, pools)),
        split(machine, pools),
        -smallest,
        (machine.usable & ~given & local(groups)).bit_count(),
        uneven(groups, pools),
    )


def split(machine: Machine, pools: Mapping[Card, int]) -> int:
    """Return the number of cores of which a pool has some threads that can be divided and not all."""
    if machine.smt == "threads" or not machine.threads:
        return 0
    return sum(machine.cores(machine.other_threads(cpus)).bit_count() for cpus in pools.values())


def uneven(groups: Groups, pools: Mapping[Card, int]) -> int:
    """Return the sum of what the largest pool of each group has more than its smallest."""
    total = 0
    for cards in groups.alike.values():
        if len(cards) > 1 and (sizes := [pools[card].bit_count() for card in cards if card in pools]):
            total += max(sizes) - min(sizes)
    return total


def local(groups: Groups) -> int:
    """Return the CPUs that are local to any card whose NUMA node is known."""
    return union(groups.local[node] for node in {card.numa for card in groups.machine.cards} if node in groups.machine.nodes)


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
