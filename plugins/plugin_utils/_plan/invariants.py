# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan must hold on every host, and sentences for where one does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
    found = [Violation("missing", "<cards> has no pool", [card]) for card in machine.cards if card in expected and not pools.get(card)]
    found.extend(_unfit(machine, pools))
    overlaps = list(shared(pools))
    found.extend(Violation("overlap", "<cards> share CPUs <cpus>", cards, cpus) for cpus, cards in overlaps)
    cores = {card: machine.cores(cpus) for card, cpus in pools.items()} if machine.smt == "cores" and machine.threads else pools
    if cores is not pools and not overlaps:
        for common, cards in shared(cores):
            threads = machine.whole_cores(common) & machine.usable
            found.append(Violation("cores", "<cards> run on threads of the same cores, CPUs <cpus>", cards, threads))
    found.extend(_uneven(groups, cores, pools))
    return found


def contradictions(machine: Machine) -> list[Violation]:
    """Return where npu-smi puts an NPU on other CPUs than those of the NUMA node that the kernel names."""
    found = []
    for card in machine.cards:
        node = machine.nodes.get(card.numa) if card.numa is not None else None
        affinity = mask(card.affinity or "", f"affinity of {card.name}")
        if node and node.cpus and affinity and not affinity & node.cpus:
            words = f"npu-smi prints CPUs {card.affinity} for <cards>, but the kernel has it on NUMA node {node.id} (<cpus>)"
            found.append(Violation("affinity", words, [card], node.cpus))
    return found


def _unfit(machine: Machine, pools: Mapping[Card, int]) -> Iterator[Violation]:
    unusable = ~machine.usable
    for card, cpus in pools.items():
        if cpus & unusable:
            yield Violation("unusable", "<cards> has CPUs <cpus>, which are offline, not allowed or set aside", [card], cpus & unusable)
        count = cpus.bit_count()
        if 0 < count < machine.min_cpus:
            yield Violation("few", f"<cards> has {count} CPUs (<cpus>), fewer than npu_affinity_min_cpus {machine.min_cpus}", [card], cpus)
        elif 0 < count < machine.least(card):
            yield Violation("few", f"<cards> has {count} CPUs (<cpus>), too few for {machine.sizes(card)} and one for main", [card], cpus)


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
                common = region & cpus
                if common:
                    split.append((common, [*cards, card]))
                if region != common:
                    split.append((region & ~common, cards))
            regions = split
        if cpus & ~seen:
            regions.append((cpus & ~seen, [card]))
        seen |= cpus
    return sorted(((cpus, cards) for cpus, cards in regions if len(cards) > 1), key=lambda region: region[0] & -region[0])


def _uneven(groups: Groups, cores: Mapping[Card, int], pools: Mapping[Card, int]) -> Iterator[Violation]:
    threads = groups.machine.threads_per_unit
    for home, cards in groups.alike.items():
        members = [card for card in cards if card in pools]
        if len(members) < 2:
            continue
        sizes = [pools[card].bit_count() for card in members]
        counts = [cores[card].bit_count() for card in members]
        if max(sizes) - min(sizes) > threads or max(counts) - min(counts) > 1:
            cores_told = "" if counts == sizes else f" on {min(counts)} to {max(counts)} cores"
            words = f"<cards> of {groups.place(home)} have pools of {min(sizes)} to {max(sizes)} CPUs{cores_told}"
            yield Violation("sizes" if max(counts) - min(counts) > 1 else UNEQUAL_CORES, words, members)
