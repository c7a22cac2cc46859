# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan must hold on every host, and sentences for where one does not.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._machine import Card, Machine, cards_named


class Violation(NamedTuple):
    """What kind of invariant is broken, a sentence without its full stop, and the cards concerned."""

    kind: str
    sentence: str
    cards: list[Card]


def violations(groups: Groups, pools: Mapping[Card, int], expected: Collection[Card]) -> list[Violation]:
    """Return what is wrong with pools, as masks; nothing where every invariant holds.

    The cards of ``expected`` have pools of at least ``min_cpus`` usable CPUs; pools are disjoint; with ``smt: cores`` no core is in
    two pools; pools of one group differ by at most one core.
    """
    machine = groups.machine
    found = [Violation("missing", f"{card.name} has no pool", [card]) for card in machine.cards if card in expected and not pools.get(card)]
    found.extend(_unfit(machine, pools))
    overlaps = list(_shared(pools))
    found.extend(Violation("overlap", f"{cards_named(cards)} share CPUs {text_of(cpus)}", cards) for cpus, cards in overlaps)
    cores = {card: machine.cores(cpus) for card, cpus in pools.items()} if machine.smt == "cores" else pools
    if cores is not pools and not overlaps:
        for shared, cards in _shared(cores):
            cpus = text_of(machine.whole_cores(shared) & machine.usable)
            found.append(Violation("cores", f"{cards_named(cards)} run on threads of the same cores, CPUs {cpus}", cards))
    found.extend(_uneven(groups, cores, pools))
    return found


def contradictions(machine: Machine) -> list[Violation]:
    """Return where npu-smi puts an NPU on other CPUs than those of the NUMA node that the kernel names."""
    found = []
    for card in machine.cards:
        node = machine.nodes.get(card.numa) if card.numa is not None else None
        affinity = mask(card.affinity or "", f"affinity of {card.name}")
        if node and node.cpus and affinity and not affinity & node.cpus:
            kernel = f"the kernel has it on NUMA node {node.id} ({text_of(node.cpus)})"
            found.append(Violation("affinity", f"npu-smi prints CPUs {card.affinity} for {card.name}, but {kernel}", [card]))
    return found


def _unfit(machine: Machine, pools: Mapping[Card, int]) -> Iterator[Violation]:
    for card, cpus in pools.items():
        if cpus & ~machine.usable:
            outside = text_of(cpus & ~machine.usable)
            yield Violation("unusable", f"{card.name} has CPUs {outside}, which are offline, not allowed or set aside", [card])
        if cpus and cpus.bit_count() < machine.min_cpus:
            few = f"{cpus.bit_count()} CPUs ({text_of(cpus)})"
            yield Violation("few", f"{card.name} has {few}, fewer than min_cpus {machine.min_cpus}", [card])


def _shared(pools: Mapping[Card, int]) -> list[tuple[int, list[Card]]]:
    """Return the CPUs that are in several pools with the cards of those pools, one entry for each set of cards."""
    union = 0
    for cpus in pools.values():
        union |= cpus
    if union.bit_count() == sum(map(int.bit_count, pools.values())):
        return []
    regions: list[tuple[int, list[Card]]] = []
    for card, cpus in pools.items():
        split = []
        for region, cards in regions:
            common = region & cpus
            if common:
                split.append((common, [*cards, card]))
            if region != common:
                split.append((region & ~common, cards))
            cpus &= ~common
        if cpus:
            split.append((cpus, [card]))
        regions = split
    return sorted(((cpus, cards) for cpus, cards in regions if len(cards) > 1), key=lambda shared: shared[0] & -shared[0])


def _uneven(groups: Groups, cores: Mapping[Card, int], pools: Mapping[Card, int]) -> Iterator[Violation]:
    threads = groups.machine.threads_per_core if groups.machine.smt == "cores" else 1
    for home, cards in groups.cards.items():
        sizes = sorted(pools[card].bit_count() for card in cards if card in pools)
        counts = sorted(cores[card].bit_count() for card in cards if card in pools)
        if sizes and (sizes[-1] - sizes[0] > threads or counts[-1] - counts[0] > 1):
            cores_told = "" if counts == sizes else f" on {counts[0]} to {counts[-1]} cores"
            sentence = f"{cards_named(cards)} of {groups.place(home)} have pools of {sizes[0]} to {sizes[-1]} CPUs{cores_told}"
            yield Violation("sizes", sentence, [card for card in cards if card in pools])
