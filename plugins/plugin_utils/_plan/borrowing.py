# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Divisions in which cards whose near nodes have too few CPUs take whole cores of other nodes, at the lowest total distance.

Cards of one node are alike and need so many units (cores or threads) together that each reaches its smallest size. Those units come
from any node (:mod:`_plan.transport`); what is left of a node belongs to the cards near to it. The distance is the lowest possible where
all cores have the same number of threads that may be divided. Elsewhere a source is the cores of a node with the same number, and the best
of four divisions is taken: by the distance of cores or of CPUs, and with large or small cores first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import FAR
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups, by_need, equal_shares
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.transport import cheapest


MANY = 64
"""With more sources than this, one way is tried."""


class Source(NamedTuple):
    """Units of a NUMA node that have the same number of CPUs."""

    node: int
    size: int
    units: list[int]


class Borrowing:
    """What cards alike can take from nodes. ``held`` are CPUs that are not there to be taken; ``neighbours`` says whether nodes without
    cards are divided completely, and ``most`` how many units a share has at most.
    """

    def __init__(self, groups: Groups, neighbours: bool = True, most: int | None = None, held: int = 0) -> None:
        machine = groups.machine
        self.groups, self.neighbours, self.most = groups, neighbours, most
        self.places = list(groups.alike)
        self.sources = [
            Source(node, machine.size(units), units)
            for node, cpus in groups.usable.items()
            for units in machine.by_size(machine.units(cpus & ~held))
            if units
        ]
        self.counts = [len(source.units) for source in self.sources]
        self.distances = list(map(self._distances, self.places))
        self.threads = machine.threads_per_unit
        self.alike = all(source.size == self.threads for source in self.sources)

    def _distances(self, place: int) -> list[int]:
        near = self.groups.local.get(place, 0)
        told, usable = self.groups.machine.nodes[place].distances, self.groups.usable
        return [0 if near & usable[source.node] else told.get(source.node, FAR) for source in self.sources]

    def least_remote(self, floor: int) -> list[tuple[int, int]] | None:
        """Return how few remote CPUs are possible with pools of at least ``floor`` CPUs, as numbers with distances.

        Where cores have different numbers of CPUs, no division has less, but it may be that none has so little. None where there are too
        few CPUs.
        """
        machine = self.groups.machine
        sizes = [[max(machine.least(card), floor) for card in cards] for cards in self.groups.alike.values()]
        if self.alike:
            given, size = cheapest([units_for(machine, of) for of in sizes], self.counts, self.distances), self.threads
        else:
            cpus = [source.size * count for source, count in zip(self.sources, self.counts, strict=True)]
            given, size = cheapest(list(map(sum, sizes)), cpus, self.distances), 1
        if given is None:
            return None
        rows = zip(given, self.distances, strict=True)
        return [(count * size, far) for row, distances in rows for count, far in zip(row, distances, strict=True) if count and far]

    def largest_within(self, distance: int, floor: int) -> int:
        """Return the largest smallest pool of divisions whose remote CPUs are no farther away in all; ``floor`` is one.

        It is rarely much larger than that, so steps are small at first.
        """
        threads = self.threads if self.alike else 1
        low, step, above = floor // threads, 1, self.largest() // threads + 1
        while low + 1 < above:
            middle = min(low + step, (low + above) // 2)
            remote = self.least_remote(middle * threads)
            if remote is not None and sum(count * far for count, far in remote) <= distance:
                low, step = middle, 2 * step
            else:
                above = middle
        return max(floor, low * threads)

    def largest(self) -> int:
        """Return a size that no division's smallest pool exceeds; all pools can have it where cores have the same number of CPUs."""
        everybody = max(1, len(self.groups.home))
        cpus = sum(source.size * count for source, count in zip(self.sources, self.counts, strict=True))
        return min(cpus // everybody, sum(self.counts) // everybody * self.threads)

    def division(self, floor: int) -> dict[Card, int]:
        """Return pools of at least ``floor`` CPUs, or of as many as are possible, and of no less than each card needs; {} where that
        is impossible.
        """
        ways = list(product((True, False), repeat=2))[: 1 if len(self.sources) > MANY else None]
        prices = [self.distances] if self.alike else [self._prices(*how) for how in ways]
        target, step = min(floor, self.largest()), 1
        high = target + 1
        while not (some := self._first(target, prices)) and target:
            high, target, step = target, max(0, target - step), 2 * step
        while high - target > 1:
            middle = (target + high) // 2
            if larger := self._first(middle, prices):
                target, some = middle, larger
            else:
                high = middle
        if not some or len(prices) == 1:
            return some
        found = [pools for costs in prices if (pools := self._division(self._sizes(target), costs))]
        return min(found, key=lambda pools: goals.score(self.groups, pools))

    def _sizes(self, target: int) -> dict[Card, int]:
        return {card: max(self.groups.machine.least(card), target) for card in self.groups.home}

    def _first(self, target: int, prices: Sequence[Sequence[Sequence[int]]]) -> dict[Card, int]:
        """Return the first division that is found with pools of at least ``target`` CPUs, or {}."""
        return next(filter(None, (self._division(self._sizes(target), costs) for costs in prices)), {})

    def _prices(self, of_cpus: bool, large_first: bool) -> list[list[int]]:
        """Return the price of a unit of every source: of its CPUs or of one. Among those of one price, large or small ones come first."""
        ties = [self.threads - source.size if large_first else source.size for source in self.sources]
        weights = [(source.size if of_cpus else 1) * self.threads * len(ties) for source in self.sources]
        return [[far * weight + tie for far, weight, tie in zip(row, weights, ties, strict=True)] for row in self.distances]

    def _division(self, sizes: Mapping[Card, int], costs: Sequence[Sequence[int]]) -> dict[Card, int]:
        """Return pools of at least these sizes. Where cores have threads that cannot be used, more of them are taken until it comes out."""
        needs = [units_for(self.groups.machine, [sizes[card] for card in cards]) for cards in self.groups.alike.values()]
        if len(self.sources) > MANY:
            cpus = sum(source.size * count for source, count in zip(self.sources, self.counts, strict=True))
            needs = [need * self.threads * sum(self.counts) // cpus for need in needs]
        while given := cheapest(needs, self.counts, costs):
            pools = self._pools(given, sizes)
            short = [sum(max(0, sizes[card] - pools[card].bit_count()) for card in cards) for cards in self.groups.alike.values()]
            if not any(short):
                return pools
            needs = [need - -lacking // self.threads for need, lacking in zip(needs, short, strict=True)]
        return {}

    def _pools(self, given: list[list[int]], sizes: Mapping[Card, int]) -> dict[Card, int]:
        self._share_out(given)
        taken: list[list[tuple[int, bool, int, list[int]]]] = [[] for _place in self.places]
        for number, source in enumerate(self.sources):
            ranks = [(row[number], place != source.node) for row, place in zip(self.distances, self.places, strict=True)]
            start = 0
            for taker in sorted(range(len(self.places)), key=lambda taker: (ranks[taker][::-1], taker)):
                end = start + given[taker][number]
                taken[taker].append((*ranks[taker], source.node, source.units[start:end]))
                start = end
        pools: dict[Card, int] = {}
        for cards, parts in zip(self.groups.alike.values(), taken, strict=True):
            units = [unit for *_rank, part in sorted(parts) for unit in part]
            ordered = sorted(cards, key=lambda card: -sizes[card])
            pools.update(zip(ordered, equal_shares(self.groups.machine, units, len(cards), self.most), strict=True))
        return {card: pools[card] for card in self.groups.machine.cards if card in pools}

    def _share_out(self, given: list[list[int]]) -> None:
        """Give what nobody needs of a source to its owners, those whose cards have the fewest CPUs first."""
        owners = [self._owners(number) for number in range(len(self.sources))]
        numbers = [len(cards) for cards in self.groups.alike.values()]
        for number in sorted(range(len(self.sources)), key=lambda number: len(owners[number])):
            left = self.counts[number] - sum(row[number] for row in given)
            if left and owners[number]:
                takers = [
                    (sum(count * source.size for count, source in zip(given[taker], self.sources, strict=True)), numbers[taker])
                    for taker in owners[number]
                ]
                for taker, more in zip(owners[number], by_need(left, self.sources[number].size, takers), strict=True):
                    given[taker][number] += more

    def _owners(self, number: int) -> list[int]:
        """Return who gets what nobody needs of a source: the cards of its node, or those to which it is local, or else those near to it."""
        node = self.sources[number].node
        if node in self.places:
            return [self.places.index(node)]
        if not self.neighbours:
            return []
        if node not in self.groups.cards and node not in self.groups.near:
            return []
        near = self.groups.near.get(node, (node,))
        local = [taker for taker, distances in enumerate(self.distances) if not distances[number]]
        return local or [taker for taker, place in enumerate(self.places) if self.groups.home[self.groups.alike[place][0]] in near]


def units_for(machine: Machine, sizes: Sequence[int]) -> int:
    """Return how many full units in equal shares give pools of these sizes, where the first ones are one unit larger if need be."""
    threads = machine.threads_per_unit
    units = [-(-size // threads) for size in sizes]
    largest = max(units)
    return len(units) * (largest - 1) + units.count(largest)
