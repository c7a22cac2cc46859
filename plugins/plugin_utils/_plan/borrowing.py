# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Divisions in which cards whose near nodes have too few CPUs take whole cores of other nodes, at the lowest total distance.

Cards of one node are alike and need so many units (cores or threads) together that each reaches its smallest size. Those units come
from any node (:mod:`_plan.transport`); what is left of a node belongs to the cards near to it. The distance is the lowest possible where
all cores have the same number of threads that may be divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups, equal_shares
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.transport import cheapest


class Borrowing:
    """What cards alike can take from nodes. ``held`` are CPUs that are not there to be taken; ``neighbours`` says whether nodes without
    cards are divided completely, and ``most`` how many units a share has at most.
    """

    def __init__(self, groups: Groups, neighbours: bool = True, most: int | None = None, held: int = 0) -> None:
        machine = groups.machine
        self.groups, self.neighbours, self.most = groups, neighbours, most
        self.places = list(groups.alike)
        self.nodes = list(groups.usable)
        self.cpus = [groups.usable[node] & ~held for node in self.nodes]
        self.counts = [(machine.cores(cpus) if machine.smt == "cores" else cpus).bit_count() for cpus in self.cpus]
        self.costs = [[self._cost(place, node) for node in self.nodes] for place in self.places]

    def _cost(self, place: int, node: int) -> int:
        near = self.groups.local.get(place, 0) & self.groups.usable[node]
        return 0 if near else self.groups.machine.distance(place, node)

    def least_remote(self, floor: int) -> list[tuple[int, int]] | None:
        """Return how few remote CPUs are possible with pools of at least ``floor`` CPUs, as numbers with distances.

        None where no division is known, or where cores have different numbers of CPUs, so that counting them proves nothing.
        """
        threads = self.groups.machine.threads_per_core if self.groups.machine.smt == "cores" else 1
        if sum(map(int.bit_count, self.cpus)) != threads * sum(self.counts):
            return None
        needs = [units_for(self.groups.machine, [floor] * len(cards)) for cards in self.groups.alike.values()]
        given = cheapest(needs, self.counts, self.costs)
        if given is None:
            return None
        amounts = zip(given, self.costs, strict=True)
        return [(count * threads, cost) for row, costs in amounts for count, cost in zip(row, costs, strict=True) if count and cost]

    def division(self, floor: int) -> dict[Card, int]:
        """Return pools of at least ``floor`` CPUs, or of as many as are possible, and of no less than each card needs; {} where that
        is impossible.
        """
        machine = self.groups.machine
        everybody = len(self.groups.home)
        for target in range(min(floor, machine.usable.bit_count() // max(1, everybody)), -1, -1):
            sizes = {card: max(machine.least(card), target) for card in self.groups.home}
            if pools := self._division(sizes):
                return pools
        return {}

    def _division(self, sizes: Mapping[Card, int]) -> dict[Card, int]:
        """Return pools of at least these sizes. Where cores have threads that cannot be used, more of them are taken until it comes out."""
        needs = [units_for(self.groups.machine, [sizes[card] for card in cards]) for cards in self.groups.alike.values()]
        while given := cheapest(needs, self.counts, self.costs):
            pools = self._pools(given, sizes)
            short = [any(pools[card].bit_count() < sizes[card] for card in cards) for cards in self.groups.alike.values()]
            if not any(short):
                return pools
            needs = [need + more for need, more in zip(needs, short, strict=True)]
        return {}

    def _pools(self, given: list[list[int]], sizes: Mapping[Card, int]) -> dict[Card, int]:
        taken: list[list[tuple[int, int, list[int]]]] = [[] for _place in self.places]
        for source, node in enumerate(self.nodes):
            units = self.groups.machine.units(self.cpus[source])
            of_node = [amounts[source] for amounts in given]
            for taker, more in self._owners(node, len(units) - sum(of_node)):
                of_node[taker] += more
            start = 0
            for taker in sorted(range(len(self.places)), key=lambda taker: (self.places[taker] != node, self.costs[taker][source], taker)):
                end = start + of_node[taker]
                rank = self.costs[taker][source] + (self.places[taker] != node)
                taken[taker].append((rank, node, units[start:end]))
                start = end
        pools: dict[Card, int] = {}
        for cards, parts in zip(self.groups.alike.values(), taken, strict=True):
            units = [unit for _rank, _node, part in sorted(parts) for unit in part]
            ordered = sorted(cards, key=lambda card: -sizes[card])
            pools.update(zip(ordered, equal_shares(self.groups.machine, units, len(cards), self.most), strict=True))
        return {card: pools[card] for card in self.groups.machine.cards if card in pools}

    def _owners(self, node: int, left: int) -> list[tuple[int, int]]:
        """Return who gets what nobody needs of a node: its own cards, else those that it is nearest to, by their number."""
        if node in self.places:
            return [(self.places.index(node), left)]
        if not self.neighbours:
            return []
        near = self.groups.near.get(node, (node,))
        owners = [taker for taker, place in enumerate(self.places) if self.groups.home[self.groups.alike[place][0]] in near]
        everybody = sum(len(self.groups.alike[self.places[taker]]) for taker in owners)
        shares = []
        start = served = 0
        for taker in owners:
            served += len(self.groups.alike[self.places[taker]])
            end = left * served // everybody
            shares.append((taker, end - start))
            start = end
        return shares


def units_for(machine: Machine, sizes: Sequence[int]) -> int:
    """Return how many full units in equal shares give pools of these sizes, where the first ones are one unit larger if need be."""
    threads = machine.threads_per_core if machine.smt == "cores" else 1
    units = [-(-size // threads) for size in sizes]
    largest = max(units)
    return len(units) * (largest - 1) + units.count(largest)
