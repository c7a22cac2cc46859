# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cards share which NUMA nodes, and how the CPUs of a group are divided among its cards.

A group is the cards whose pools come from one NUMA node, their home. A card's home is its own node; where that has no CPUs at all,
the nearest one that has. Cards whose node nobody knows go together to the node of their affinity, else to where there is most room.
A card none of whose CPUs may be divided takes part in the nearest node with room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import FAR
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cut, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named

UNREACHABLE = FAR + 1
"""Farther than any distance."""


class Groups:
    """The groups of a machine. ``home`` maps cards to node ids; ``near`` maps nodes without cards to the homes nearest to them.

    Nodes without cards at a distance of ``reach`` or more are near to none. Cards whose node nobody knows are ``staying`` on that of their
    pools in force even where it has too few CPUs for them now.
    """

    def __init__(self, machine: Machine, reach: int = UNREACHABLE, staying: bool = False) -> None:
        self.machine, self.reach, self.staying = machine, reach, staying
        self.usable = {node.id: node.cpus & machine.usable for node in machine.nodes.values() if node.cpus & machine.usable}
        self.home: dict[Card, int] = {}
        self.cards: dict[int, list[Card]] = {}
        unknown_numa: dict[tuple[int, ...], list[Card]] = {}
        no_local_cpus: dict[int, list[Card]] = {}
        for card in machine.cards:
            nodes = self._nodes(card)
            usable = tuple(node for node in nodes if node in self.usable)
            if len(usable) == 1:
                self._settle([card], usable[0])
            elif usable or not nodes:
                unknown_numa.setdefault(usable, []).append(card)
            else:
                no_local_cpus.setdefault(nodes[0], []).append(card)
        for node, cards in sorted(no_local_cpus.items()):
            self._settle(cards, self._nearest_with_room(node, cards))
        self.anywhere = not self.home and set(unknown_numa) == {()}
        for nodes, cards in sorted(unknown_numa.items(), key=lambda item: (not item[0], item[0])):
            in_force = union(machine.in_force.get(card, 0) for card in cards) & machine.usable
            self._settle(cards, max(nodes or sorted(self.usable), key=lambda node: self._fitness(node, cards, in_force)))
        self.cards = {home: [card for card in machine.cards if self.home.get(card) == home] for home in sorted(self.cards)}

    def _settle(self, cards: Iterable[Card], home: int) -> None:
        for card in cards:
            self.home[card] = home
            self.cards.setdefault(home, []).append(card)

    def _nodes(self, card: Card) -> tuple[int, ...]:
        """Return the NUMA node of a card, else those of its affinity; none where that tells nothing."""
        if card.numa in self.machine.nodes:
            return (card.numa,)
        affinity = self.machine.printed(card)
        return tuple(node.id for node in self.machine.nodes.values() if affinity & node.cpus)

    def _fitness(self, node: int, more: list[Card], in_force: int) -> tuple[int, int, float]:
        """Return how well a node fits more cards whose pools in force are these CPUs: they stay on the one that has most of these, while
        it has enough for them, or always."""
        enough, stay = self._gives_enough(node, more), (in_force & self.usable[node]).bit_count()
        return (stay, enough, self._room(node, len(more))) if self.staying else (enough, stay, self._room(node, len(more)))

    def _room(self, node: int, more: int) -> float:
        """Return the cores for each card of a node, after ``more`` cards have joined."""
        return self._units[node] / (len(self.cards.get(node, ())) + more)

    @cached_property
    def _units(self) -> dict[int, int]:
        return {node: self.machine.number(cpus) for node, cpus in self.usable.items()}

    def _nearest_with_room(self, node: int, more: list[Card]) -> int:
        """Return the nearest node that can give more cards as many CPUs as they need, else the nearest."""
        nearest = sorted(self.usable, key=lambda other: (self.machine.distance(node, other), other))
        return next((other for other in nearest if self._gives_enough(other, more)), nearest[0])

    def _gives_enough(self, node: int, more: list[Card]) -> bool:
        each = int(self._room(node, len(more))) * self.usable[node].bit_count() // self._units[node]
        return each >= max(map(self.machine.least, more))

    @cached_property
    def near(self) -> dict[int, tuple[int, ...]]:
        """For every node with usable CPUs and without cards, the homes at the smallest distance; several where they tie."""
        nearest = {node: self._nearest(node, self.cards) for node in self.usable.keys() - self.cards.keys()}
        return {node: homes for node, homes in nearest.items() if self.machine.distance(node, homes[0]) < self.reach}

    def _nearest(self, node: int, others: Iterable[int]) -> tuple[int, ...]:
        """Return those of other nodes at the smallest distance from a node."""
        distances = {other: self.machine.distance(node, other) for other in others}
        least = min(distances.values(), default=0)
        return tuple(other for other, distance in distances.items() if distance == least)

    def _place(self, card: Card) -> int | None:
        """Return the NUMA node that a card counts on: its own, else its home."""
        return nodes[0] if len(nodes := self._nodes(card)) == 1 else self.home.get(card)

    @cached_property
    def alike(self) -> dict[int, list[Card]]:
        """The cards of groups by the node that they count on: those of which no pool may differ from another by more than a core."""
        places: dict[int, list[Card]] = {}
        for card in self.machine.cards:
            if card in self.home and (place := self._place(card)) is not None:
                places.setdefault(place, []).append(card)
        return dict(sorted(places.items()))

    @cached_property
    def local(self) -> dict[int, int]:
        """For every node with cards, the CPUs that are local to these: its own, and those of the nodes without cards to which no other
        card is nearer, as a mask, whether or not they may be divided. A card whose node is not known counts on its home.
        """
        nodes = self.machine.nodes
        occupied = {place for card in self.machine.cards if (place := self._place(card)) is not None}
        local = {node: nodes[node].cpus for node in occupied}
        for node in nodes.keys() - occupied:
            for other in self._nearest(node, occupied):
                local[other] |= nodes[node].cpus
        return local

    def local_cpus(self, card: Card) -> int | None:
        """Return the CPUs that are local to a card as a mask; None where its NUMA node is not known.

        CPUs on the node of another card are remote, even if none of its own may be divided.
        """
        return self.local[card.numa] if card.numa in self.machine.nodes else None

    def divide(self, requested: Collection[Card], neighbours: bool, most: int | None = None) -> dict[Card, int]:
        """Return a pool for every card: the cores of each group in equal shares, which differ by at most one core.

        ``neighbours`` also divides nodes without cards, each over the groups nearest to it; ``most`` limits a share to so many
        cores. A group with too few CPUs has no pools; if cards of it are requested, that is a ``ValueError`` naming the group, the
        CPUs found and needed, and what to change.
        """
        pools: dict[Card, int] = {}
        machine = self.machine
        shares = {
            home: [units for node in (sorted(self.usable) if self.anywhere else [home]) for units in machine.units(self.usable[node])]
            for home in self.cards
        }
        if neighbours and not self.anywhere:
            self._add_neighbours(shares)
        for home, cards in self.cards.items():
            of_group = dict(zip(cards, equal_shares(machine, shares[home], len(cards), most), strict=True))
            small = [card for card, cpus in of_group.items() if cpus.bit_count() < machine.least(card)]
            if not small:
                pools.update(of_group)
            elif any(card in requested for card in cards):
                raise ValueError(_too_few(self, home, of_group, small, neighbours))
        return pools

    def _add_neighbours(self, shares: dict[int, list[int]]) -> None:
        """Add the nodes without cards; those nearest to several groups go to those whose cards have the fewest CPUs."""
        machine = self.machine
        ties: dict[tuple[int, ...], list[int]] = {}
        for node, homes in sorted(self.near.items()):
            ties.setdefault(homes, []).extend(machine.units(self.usable[node]))
        for homes, units in sorted(ties.items(), key=lambda item: (len(item[0]), item[0])):
            if len(homes) == 1:
                shares[homes[0]].extend(units)
                continue
            for size, same in machine.by_size(units):
                takers = [(machine.joined(union(shares[home])).bit_count(), len(self.cards[home])) for home in homes]
                numbers = by_need(sum(map(int.bit_count, same)), size, takers)
                for home, part in zip(homes, cut(same, numbers), strict=True):
                    shares[home].append(part)

    def place(self, home: int) -> str:
        """Return what the group of a home is called in sentences."""
        return "the host" if self.anywhere or home == NO_NODE else f"NUMA node {home}"


def _too_few(groups: Groups, home: int, pools: dict[Card, int], small: list[Card], neighbours: bool) -> Sentence:
    machine = groups.machine
    worst = min(small, key=lambda card: pools[card].bit_count())
    needed = machine.least(worst)
    roles = f" ({machine.sizes(worst)} and one for main)" if needed > machine.min_cpus else ""
    usable = union(pools.values())
    units = machine.number(usable)
    where = groups.place(home) + (" with its neighbours" if neighbours and groups.near and not groups.anywhere else "")
    others = usable != machine.usable and sum(map(machine.least, groups.home)) <= machine.usable.bit_count()
    cores = f" in {units} cores" if machine.smt == "cores" and units != usable.bit_count() else ""
    return Sentence(
        "NPU_TOO_FEW_CPUS",
        f"{where[0].upper()}{where[1:]} has {usable.bit_count()} usable CPUs{cores} for {cards_named(pools)}: "
        f"{text_of(usable) or 'none'}. {worst.name} would get {pools[worst].bit_count()} where at least {needed}{roles} are needed, "
        f"{sum(map(machine.least, pools))} in all. Allow more CPUs with npu_affinity_cpus, keep fewer with "
        "npu_affinity_housekeeping, or "
        + ("make npu_affinity_roles smaller" if roles else "lower npu_affinity_min_cpus")
        + ("; npu_affinity_smt: threads divides single threads" if cores else "")
        + ("" if neighbours or not others else "; strategy topo_affinity also uses CPUs of other nodes"),
    )


def equal_shares(machine: Machine, units: list[int], count: int, most: int | None = None) -> list[int]:
    """Return ``count`` masks of equal numbers of units, each a run of them, the first ones one unit larger where it does not come out.

    ``most`` limits a share to so many units. Units of different sizes (cores of which one thread is missing) are shared out from the
    largest to the smallest, so that shares differ neither by more than one core nor by more CPUs than a core has.
    """
    if most is not None:
        units = _first(units, most * count)
    sizes = machine.by_size(units)
    numbers = dealt_out([(size, sum(map(int.bit_count, same))) for size, same in sizes], count)
    shares = [0] * count
    for (_size, same), dealt in zip(sizes, numbers, strict=True):
        shares = [share | part for share, part in zip(shares, cut(same, dealt), strict=True)]
    return list(map(machine.joined, shares))


def _first(units: list[int], number: int) -> list[int]:
    """Return the first units, so many of them."""
    kept = []
    for part in units:
        kept += cut([part], [min(number, part.bit_count())])
        number -= kept[-1].bit_count()
    return kept


def dealt_out(sizes: Sequence[tuple[int, int]], count: int) -> Iterator[list[int]]:
    """Yield how many units of every size each of ``count`` shares gets. ``sizes`` are CPUs of a unit, descending, with numbers of units.

    The share with the fewest CPUs takes the next unit, unless it would then have two units more than another.
    """
    each, larger = divmod(sum(number for _size, number in sizes), count)
    cpus, units = [0] * count, [0] * count
    for size, number in sizes:
        rounds = max(0, min(number // count - any(units), each - max(units)))
        dealt = [rounds] * count
        for _unit in range(number - rounds * count):
            room = each + (sum(has + new > each for has, new in zip(units, dealt, strict=True)) < larger)
            open_to = (share for share in range(count) if units[share] + dealt[share] < room)
            dealt[min(open_to, key=lambda share: (cpus[share] + dealt[share] * size, units[share] + dealt[share], share))] += 1
        for share, new in enumerate(dealt):
            units[share] += new
            cpus[share] += new * size
        yield dealt


def by_need(number: int, size: int, takers: Sequence[tuple[int, int]]) -> list[int]:
    """Return how many of so many units of ``size`` CPUs each taker gets: that whose cards have the fewest CPUs takes the next one.

    ``takers`` are CPUs that they have already, with numbers of cards.
    """
    given, loads = [0] * len(takers), [cpus / cards for cpus, cards in takers]
    for _unit in range(number):
        taker = loads.index(min(loads))
        given[taker] += 1
        cpus, cards = takers[taker]
        loads[taker] = (cpus + given[taker] * size) / cards
    return given
