# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan must hold on every host, and what makes one division better than another.

The goals, each of which counts only where all before it are equal:

1. No CPU is in two pools.
2. The smallest pool has no fewer CPUs than the published rule gives, because the NPUs of one job wait for the slowest.
3. The pools in force change by few CPUs, because work is running there.
4. Few remote CPUs, each weighted by its NUMA distance.
5. Whole cores.
6. A large smallest pool.
7. Few idle CPUs that are local to an NPU.
8. Pools of equal size within a group.

What a plan must never break are its invariants (:func:`violations`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named

UNEQUAL_CORES = "unequal cores"
"""The kind of violation where pools of a group differ by a core at most, but have cores with different numbers of CPUs."""


class Violation(NamedTuple):
    """What kind of invariant is broken, in words in which ``<cards>`` and ``<cpus>`` stand for the cards and CPUs concerned."""

    kind: str
    words: str
    cards: list[Card]
    cpus: int = 0

    @property
    def sentence(self) -> str:
        """The words with names and numbers, without a full stop. Most of many defects of one kind are never told."""
        return self.words.replace("<cards>", cards_named(self.cards)).replace("<cpus>", text_of(self.cpus))


def violations(groups: Groups, pools: Mapping[Card, int], expected: Collection[Card]) -> list[Violation]:
    """Return what is wrong with pools, as masks; nothing where every invariant holds.

    The cards of ``expected`` have pools; pools hold usable CPUs only, and at least as many as ``min_cpus`` and the roles need; they are
    disjoint; with ``smt: cores`` no core is in two of them; those of one group differ by at most one core.
    """
    machine = groups.machine
    broken = [Violation("missing", "<cards> has no pool", [card]) for card in machine.cards if card in expected and not pools.get(card)]
    broken += _unfit(machine, pools)
    overlaps = shared(pools)
    broken += [Violation("overlap", "<cards> share CPUs <cpus>", cards, cpus) for cpus, cards in overlaps]
    cores = {card: machine.cores(cpus) for card, cpus in pools.items()} if machine.smt == "cores" and machine.threads else pools
    for common, cards in shared(cores) if cores is not pools and not overlaps else ():
        threads = machine.whole_cores(common) & machine.usable
        broken.append(Violation("cores", "<cards> run on threads of the same cores, CPUs <cpus>", cards, threads))
    for home, cards in groups.alike.items():
        members = [card for card in cards if card in pools]
        if len(members) > 1:
            sizes, counts = ([of[card].bit_count() for card in members] for of in (pools, cores))
            uneven_cores = max(counts) - min(counts) > 1
            if uneven_cores or max(sizes) - min(sizes) > machine.threads_per_unit:
                on_cores = "" if counts == sizes else f" on {min(counts)} to {max(counts)} cores"
                words = f"<cards> of {groups.place(home)} have pools of {min(sizes)} to {max(sizes)} CPUs{on_cores}"
                broken.append(Violation("sizes" if uneven_cores else UNEQUAL_CORES, words, members))
    return broken


def contradictions(machine: Machine) -> list[Violation]:
    """Return where npu-smi puts an NPU on other CPUs than those of the NUMA node that the kernel names."""
    words = "npu-smi prints CPUs {0.affinity} for <cards>, but the kernel has it on NUMA node {0.numa} (<cpus>)"
    cpus = ((card, machine.own_cpus(card), mask(card.affinity or "", f"affinity of {card.name}")) for card in machine.cards)
    return [
        Violation("affinity", words.format(card), [card], near) for card, near, printed in cpus if near and printed and not near & printed
    ]


def _unfit(machine: Machine, pools: Mapping[Card, int]) -> Iterator[Violation]:
    unusable = ~machine.usable
    for card, cpus in pools.items():
        if cpus & unusable:
            yield Violation("unusable", "<cards> has CPUs <cpus>, which are offline, not allowed or set aside", [card], cpus & unusable)
        count, least = cpus.bit_count(), machine.min_cpus
        if 0 < count < machine.least(card):
            lacks = f"fewer than npu_affinity_min_cpus {least}" if count < least else f"too few for {machine.sizes(card)} and one for main"
            yield Violation("few", f"<cards> has {count} CPUs (<cpus>), {lacks}", [card], cpus)


def shared(pools: Mapping[Card, int]) -> list[tuple[int, list[Card]]]:
    """Return the CPUs that are in several pools with the cards of those pools, one entry for each set of cards."""
    if union(pools.values()).bit_count() == sum(map(int.bit_count, pools.values())):
        return []
    regions: list[tuple[int, list[Card]]] = []
    seen = 0
    for card, cpus in pools.items():
        if cpus & seen:
            split = []
            for region, cards in regions:
                split += [(region & cpus, [*cards, card])] if region & cpus else []
                split += [(region & ~cpus, cards)] if region & ~cpus else []
            regions = split
        if cpus & ~seen:
            regions.append((cpus & ~seen, [card]))
        seen |= cpus
    return sorted(((cpus, cards) for cpus, cards in regions if len(cards) > 1), key=lambda region: region[0] & -region[0])


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
        sums(remote(groups, pools))[1],
        split(machine, pools),
        -smallest,
        (machine.usable & ~given & local(groups)).bit_count(),
        uneven(groups, pools),
    )


def sums(remote: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of remote CPUs, and the sum of their distances."""
    counted = list(remote)
    return sum(count for count, _distance in counted), sum(count * distance for count, distance in counted)


def split(machine: Machine, pools: Mapping[Card, int]) -> int:
    """Return the number of cores of which a pool has some threads that can be divided and not all."""
    if machine.smt == "threads" or not machine.threads:
        return 0
    return sum(machine.cores(machine.other_threads(cpus)).bit_count() for cpus in pools.values())


def uneven(groups: Groups, pools: Mapping[Card, int]) -> int:
    """Return the sum of what the largest pool of each group has more than its smallest."""
    sizes = ([pools[card].bit_count() for card in cards if card in pools] for cards in groups.alike.values() if len(cards) > 1)
    return sum(max(of_group) - min(of_group) for of_group in sizes if of_group)


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
