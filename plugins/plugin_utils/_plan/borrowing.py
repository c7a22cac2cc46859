# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Divisions in which cards whose near nodes have too few CPUs take whole cores of other nodes, at the lowest total distance.

Cards of one node are alike and need so many units (cores or threads) together that each reaches its smallest size. Those units come
from any node (:class:`Flow`); what is left of a node belongs to the cards near to it. The distance is the lowest possible where
all cores have the same number of threads that may be divided. Elsewhere a source is the cores of a node with the same number, and the best
of four divisions is taken: by the distance of cores or of CPUs, and with large or small cores first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from operator import mul
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import FAR
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cut
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups, by_need, dealt_out, equal_shares
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card

NEVER = 1 << 62
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
        self.places, self.cards = list(groups.alike), list(groups.alike.values())
        self.least = [list(map(machine.least, cards)) for cards in self.cards]
        self.cpus = {node: free for node, cpus in groups.usable.items() if (free := cpus & ~held)}
        self.far = [self._distances(place) for place in self.places]
        self.sources = [Source(node, *of_size) for node, cpus in self.cpus.items() for of_size in machine.by_size(machine.units(cpus))]
        self.counts = [sum(map(int.bit_count, source.units)) for source in self.sources]
        self.threads = machine.threads_per_unit
        self.alike = all(source.size == self.threads for source in self.sources)
        self.total = sum(map(int.bit_count, self.cpus.values()))

    def _distances(self, place: int) -> list[int]:
        near = self.groups.local.get(place, 0)
        distances = self.groups.machine.nodes[place].distances
        return [0 if near & cpus else distances.get(node, FAR) for node, cpus in self.cpus.items()]

    @cached_property
    def distances(self) -> list[list[int]]:
        """The distances of sources, by place."""
        return [[far[source.node] for source in self.sources] for far in (dict(zip(self.cpus, row, strict=True)) for row in self.far)]

    def _flow(self, floor: int) -> Flow | None:
        """Return what cards take of nodes at the lowest distance for pools of at least ``floor`` CPUs; None where there are too few.

        In units, or in CPUs where cores have different numbers of them: then no division has less distance, but maybe none so little.
        """
        flow = Flow(self.counts if self.alike else list(map(int.bit_count, self.cpus.values())), self.far)
        return flow if flow.meet(self._needs(floor)) else None

    def _needs(self, floor: int) -> list[int]:
        sizes = [[max(least, floor) for least in of] for of in self.least]
        return [units_for(self.threads, of) for of in sizes] if self.alike else list(map(sum, sizes))

    def least_remote(self, floor: int) -> list[tuple[int, int]] | None:
        """Return the remote CPUs of :meth:`_flow`, as numbers with distances."""
        if not (flow := self._flow(floor)):
            return None
        size = self.threads if self.alike else 1
        rows = zip(flow.given, self.far, strict=True)
        return [(count * size, far) for row, distances in rows for count, far in zip(row, distances, strict=True) if count and far]

    def largest_within(self, distance: int, floor: int) -> int:
        """Return the largest smallest pool of divisions whose remote CPUs are no farther away in all; ``floor`` is one.

        It is rarely much larger than that, so steps are small at first.
        """
        threads = self.threads if self.alike else 1
        low, step, above = floor // threads, 1, self.largest() // threads + 1
        flow = self._flow(low * threads)
        while flow and low + 1 < above:
            middle = min(low + step, (low + above) // 2)
            larger = flow.copy()
            if larger.meet(self._needs(middle * threads)) and larger.cost * threads <= distance:
                low, step, flow = middle, 2 * step, larger
            else:
                above = middle
        return max(floor, low * threads)

    def largest(self) -> int:
        """Return a size that no division's smallest pool exceeds; all pools can have it where cores have the same number of CPUs."""
        everybody = max(1, len(self.groups.home))
        return min(self.total // everybody, sum(self.counts) // everybody * self.threads)

    def division(self, floor: int) -> dict[Card, int]:
        """Return pools of at least ``floor`` CPUs, or of as many as are possible, and of no less than each card needs; {} where that
        is impossible.
        """
        orders = list(product((True, False), repeat=2))[: 1 if len(self.sources) > MANY else None]
        prices = [self.distances] if self.alike else [self._prices(*order) for order in orders]
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
        if not some:
            return {}
        shares = [some] if len(prices) == 1 else [given for costs in prices if (given := self._given(target, costs))]
        return min(map(self._pools, shares), key=lambda pools: goals.score(self.groups, pools))

    def _first(self, target: int, prices: Sequence[Sequence[Sequence[int]]]) -> list[list[int]] | None:
        """Return the first division that is found with pools of at least ``target`` CPUs."""
        return next(filter(None, (self._given(target, costs) for costs in prices)), None)

    def _prices(self, of_cpus: bool, large_first: bool) -> list[list[int]]:
        """Return the price of a unit of every source: of its CPUs or of one. Among those of one price, large or small ones come first."""
        ties = [self.threads - source.size if large_first else source.size for source in self.sources]
        weights = [(source.size if of_cpus else 1) * self.threads * len(ties) for source in self.sources]
        return [[far * weight + tie for far, weight, tie in zip(row, weights, ties, strict=True)] for row in self.distances]

    def _given(self, target: int, costs: Sequence[Sequence[int]]) -> list[list[int]] | None:
        """Return how many units each place takes of each source, for pools of at least ``target`` CPUs.

        Where cores have threads that cannot be used, more of them are taken until it comes out.
        """
        sizes = [sorted((max(least, target) for least in of), reverse=True) for of in self.least]
        needs = [units_for(self.threads, of) for of in sizes]
        units, cpus = (sum(self.counts), self.total) if len(self.sources) > MANY else (1, self.threads)
        if units > 1:
            needs = [need * self.threads * units // cpus for need in needs]
        flow = Flow(self.counts, costs)
        shortfalls: list[tuple[list[int], int]] = [([], 0)] * len(sizes)
        while flow.meet(needs):
            given = self._shared_out(flow.given)
            shortfalls = [
                was if was[0] == row else (row, self._short(taker, row, sizes[taker]))
                for taker, (row, was) in enumerate(zip(given, shortfalls, strict=True))
            ]
            if not any(short for _row, short in shortfalls):
                return given
            needs = [need - -short * units // cpus for need, (_row, short) in zip(needs, shortfalls, strict=True)]
        return None

    def _short(self, taker: int, row: Sequence[int], sizes: Sequence[int]) -> int:
        """Return the CPUs that equal shares of units lack of these sizes."""
        counts: dict[int, int] = {}
        room = self.most * len(sizes) if self.most else sum(row)
        for number in self._nearest_first[taker]:
            source, units = self.sources[number], min(row[number], room)
            counts[source.size] = counts.get(source.size, 0) + units
            room -= units
        shares = [0] * len(sizes)
        dealt_of = sorted(counts.items(), reverse=True)
        for (size, _count), dealt in zip(dealt_of, dealt_out(dealt_of, len(sizes)), strict=True):
            shares = [cpus + size * number for cpus, number in zip(shares, dealt, strict=True)]
        return sum(max(0, size - cpus) for size, cpus in zip(sizes, shares, strict=True))

    @cached_property
    def _nearest_first(self) -> list[list[int]]:
        """The sources by place, in the order in which its cards use them."""
        numbers = range(len(self.sources))
        return [
            sorted(numbers, key=lambda number: (far[number], place != self.sources[number].node, self.sources[number].node))
            for place, far in zip(self.places, self.distances, strict=True)
        ]

    def _pools(self, given: list[list[int]]) -> dict[Card, int]:
        parts: list[dict[int, int]] = [{} for _place in self.places]
        for number, source in enumerate(self.sources):
            takers = [taker for taker, row in enumerate(given) if row[number]]
            takers.sort(key=lambda taker: (self.places[taker] != source.node, self.distances[taker][number], taker))
            for taker, part in zip(takers, cut(source.units, [given[taker][number] for taker in takers]), strict=True):
                parts[taker][number] = part
        pools: dict[Card, int] = {}
        for taker, cards in enumerate(self.cards):
            units = [parts[taker][number] for number in self._nearest_first[taker] if number in parts[taker]]
            ordered = sorted(cards, key=lambda card: -self.groups.machine.least(card))
            pools.update(zip(ordered, equal_shares(self.groups.machine, units, len(cards), self.most), strict=True))
        return {card: pools[card] for card in self.groups.machine.cards if card in pools}

    def _shared_out(self, taken: Sequence[Sequence[int]]) -> list[list[int]]:
        """Give what nobody needs of a source to its owners, those whose cards have the fewest CPUs first."""
        given = [list(row) for row in taken]
        sizes = [source.size for source in self.sources]
        cpus = [sum(map(mul, row, sizes)) for row in given]
        remaining = [count - sum(of) for count, *of in zip(self.counts, *given, strict=True)]
        for number, owners in self._owned:
            if remaining[number]:
                takers = [(cpus[taker], len(self.cards[taker])) for taker in owners]
                for taker, more in zip(owners, by_need(remaining[number], sizes[number], takers), strict=True):
                    given[taker][number] += more
                    cpus[taker] += more * sizes[number]
        return given

    @cached_property
    def _owned(self) -> list[tuple[int, list[int]]]:
        """The sources with those who get what nobody needs of them, sources of few owners first."""
        owned = ((number, self._owners(source.node)) for number, source in enumerate(self.sources))
        return sorted(((number, owners) for number, owners in owned if owners), key=lambda source: len(source[1]))

    def _owners(self, node: int) -> list[int]:
        """Return the owners of a node: its cards, or those to which it is local, or else those near to it."""
        if node in self.places:
            return [self.places.index(node)]
        if not self.neighbours:
            return []
        if node not in self.groups.cards and node not in self.groups.near:
            return []
        near = self.groups.near.get(node, (node,))
        number = list(self.cpus).index(node)
        local = [taker for taker, far in enumerate(self.far) if not far[number]]
        return local or [taker for taker, place in enumerate(self.places) if self.groups.home[self.groups.alike[place][0]] in near]


def units_for(threads: int, sizes: Sequence[int]) -> int:
    """Return how many full units in equal shares give pools of these sizes, where the first ones are one unit larger if need be."""
    units = [-(-size // threads) for size in sizes]
    largest = max(units)
    return len(units) * (largest - 1) + units.count(largest)


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
        path, other = [], by[end]
        while (lent := reached[other][1]) >= 0:
            path.append((other, lent))
            other = by[lent]
        return end, path
