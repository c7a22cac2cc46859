# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what a strategy publishes where it holds the invariants (and is near enough), and repair it where it does not.

Mending divides the whole cores of every NUMA node, and of the nodes without cards near to it, over the cards of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.invariants import Violation, contradictions, violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import percent, quality
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy

BY_NODE = "the CPUs of every NUMA node were divided over its cards"
EVENLY = "each card has an equal share of the host's CPUs, near ones first"
SHOWN = 4
"""So many cards are named with their CPUs in a sentence, and fewer defects of one kind are told one by one."""


def repaired(groups: Groups, name: str, strategy: Strategy, asked: Collection[Card], near: bool) -> tuple[Pools, list[str]]:
    """Return pools for all cards that are in a group, and a sentence for every defect of the published ones.

    With ``near`` it is a defect, too, that the published pools are more remote than a division of the near nodes.

    Groups in which ``min_cpus`` cannot be reached have none; where cards of them are asked for, that is a ``ValueError``.
    """
    machine = groups.machine
    everybody = frozenset(groups.home)
    filled = _fill_affinity(machine) if strategy.READS_AFFINITY else []
    made = Pools(name, {})
    try:
        made = strategy.pools(machine, everybody)
        defects = violations(groups, made.masks, everybody)
        if not made.masks:
            defects = [Violation("nothing", f"it binds nothing: {warning.rstrip('.')}", list(groups.home)) for warning in made.warnings]
        elif strategy.READS_AFFINITY and made.strategy == name:
            defects += contradictions(machine)
    except ValueError as error:
        defects = [Violation("error", f"it fails: {str(error).rstrip('.')}", list(groups.home))]
    if not defects:
        closer = _closer(groups, strategy, made) if near else made
        return closer, [*_told(name, filled), *([f"Published {name}: {closer.closer}."] if closer.closer else [])]
    masks, how = _divided(groups, strategy, asked)
    if remaining := violations(groups, masks, masks):
        raise ValueError("The CPUs cannot be divided by the rules: " + "; ".join(violation.sentence for violation in remaining))
    pools = {card: masks[card] for card in machine.cards if card in masks}
    repaired = Pools(made.strategy, pools, warnings=made.warnings if made.masks else [])
    return repaired, [*_told(name, filled), *_sentences(made.strategy, defects, pools, how)]


def _divided(groups: Groups, strategy: Strategy, asked: Collection[Card]) -> tuple[dict[Card, int], str]:
    """Return the division that replaces a broken one, and how it was made: by near nodes, unless the smallest of equal shares is larger."""
    most = _most(groups.machine, strategy)
    if strategy.INCLUDE_ALL:
        near, even = groups.divide((), strategy.USE_ADJACENT_NODES, most), groups.even_shares()
        shrinks = set(near) != set(groups.home) or quality(groups, near)["smallest"] < quality(groups, even)["smallest"]
        if shrinks and not violations(groups, even, groups.home):
            return even, EVENLY
    return groups.divide(asked, strategy.USE_ADJACENT_NODES, most), BY_NODE


def _most(machine: Machine, strategy: Strategy) -> int | None:
    """Return the largest share in units, None where there is no limit."""
    units = machine.threads_per_core if machine.smt == "threads" else 1
    return strategy.MAX_CORES and max(strategy.MAX_CORES * units, *map(machine.least, machine.cards))


def _closer(groups: Groups, strategy: Strategy, made: Pools) -> Pools:
    """Return the first division over the same cards, whoever is asked for, of which more is local and whose smallest pool is no smaller.

    Without one, return the published pools. ``kept`` says what a more local division would cost.
    """
    published = quality(groups, made.masks)
    if published["local"] == 1 or set(made.masks) != set(groups.home):
        return made
    divisions = {"the near nodes were divided": groups.divide((), strategy.USE_ADJACENT_NODES, _most(groups.machine, strategy))}
    if strategy.INCLUDE_ALL:
        divisions[EVENLY] = groups.even_shares()
    kept = ""
    for how, masks in divisions.items():
        found = quality(groups, masks)
        if found["local"] <= published["local"] or violations(groups, masks, groups.home):
            continue
        if found["smallest"] >= published["smallest"]:
            pools = {card: masks[card] for card in groups.machine.cards if card in masks}
            closer = f"{percent(published['local'])} of the CPUs would be local to their NPU. Instead {how}, which gives"
            return Pools(made.strategy, pools, warnings=made.warnings, closer=f"{closer} {percent(found['local'])}", kept=kept)
        kept = kept or (
            f"a division with {percent(found['local'])} local CPUs would shrink the smallest pool from {published['smallest']} to "
            f"{found['smallest']} CPUs"
        )
    return replace(made, kept=kept)


def _fill_affinity(machine: Machine) -> list[Card]:
    """Give the cards of which npu-smi prints nothing the CPUs of the node that the kernel names, and return those cards."""
    filled = []
    for card in machine.cards:
        node = None if card.affinity or card.numa is None else machine.nodes.get(card.numa)
        if node and node.cpus:
            card.affinity = text_of(node.cpus)
            filled.append(card)
    return filled


def _told(strategy: str, filled: list[Card]) -> list[str]:
    if not filled:
        return []
    return [f"Published {strategy}: npu-smi prints no CPUs for {cards_named(filled)}. Instead those of the kernel's NUMA nodes were taken."]


def _sentences(strategy: str, defects: Iterable[Violation], pools: Mapping[Card, int], how: str) -> Iterator[str]:
    """Yield what the published pools break and what was done instead; of many defects of one kind, the first with its numbers."""
    kinds: dict[str, list[Violation]] = {}
    for defect in defects:
        kinds.setdefault(defect.kind, []).append(defect)
    for alike in kinds.values():
        told = alike if len(alike) < SHOWN else alike[:1]
        for defect in told:
            yield f"Published {strategy}: {defect.sentence}. Instead {_outcome(defect.cards, pools, how)}."
        if others := {card: None for defect in alike[len(told) :] for card in defect.cards}:
            yield f"Published {strategy}: the same holds for {cards_named(others)}. Instead {_outcome(others, pools, how)}."


def _outcome(cards: Iterable[Card], pools: Mapping[Card, int], how: str) -> str:
    told = [card for card in cards if card in pools]
    if len(told) <= SHOWN:
        return ", ".join(f"{card.name} has {text_of(pools[card])}" for card in told) or "they have no pool, because their node has too few"
    sizes = sorted({pools[card].bit_count() for card in told})
    return f"{how}, {' or '.join(map(str, sizes))} each"
