# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what a strategy publishes where it holds the invariants (and is near enough), and repair it where it does not.

Mending divides the whole cores of every NUMA node, and of the nodes without cards near to it, over the cards of the node. Where these
are too few, cards take cores of other nodes. Which of the divisions is taken follows from :mod:`_plan.goals`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.invariants import Violation, contradictions, violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import local_share, percent
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.warnings import limited

BY_NODE = "the CPUs of every NUMA node were divided over its cards"
BORROWED = "cards with too few near CPUs take whole cores of the nearest nodes that can spare them"
IN_FORCE = "the pools in force, which are as good as new ones, were kept"
SHOWN = 4
"""So many cards are named with their CPUs in a sentence, and fewer defects of one kind are listed one by one."""


class Division(NamedTuple):
    """How pools were made, these as masks, and their score."""

    how: str
    masks: Mapping[Card, int]
    score: goals.Score


def repaired(groups: Groups, name: str, strategy: Strategy, asked: Collection[Card], auto: bool) -> tuple[Pools, list[str]]:
    """Return pools for all cards that are in a group, and a sentence for every defect of the published ones.

    With ``auto`` it is a defect, too, that the published pools are more remote than a division.

    Where the host cannot give every card as much as it needs, groups with too few CPUs have no pools; if cards of them are requested,
    that is a ``ValueError``.
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
    if not defects and not (auto and everybody == set(made.masks) and any(goals.remote(groups, made.masks))):
        return made, _told(name, filled)
    floor = goals.smallest_share(made.masks, everybody)
    divisions = list(_divisions(groups, strategy, floor, auto))
    if not defects:
        closer = _closer(groups, made, divisions)
        return closer, [*_told(name, filled), *([f"Published {name}: {closer.closer}."] if closer.closer else [])]
    if divisions:
        how, masks, _score = _best(groups, divisions, floor)
    else:
        how, masks = BY_NODE, groups.divide(asked, strategy.USE_ADJACENT_NODES, _most(machine, strategy))
        if remaining := violations(groups, masks, masks):
            raise ValueError(
                Sentence(
                    "NPU_RULE_FAILS", "The CPUs cannot be divided by the rules: " + "; ".join(violation.sentence for violation in remaining)
                )
            )
    pools = {card: masks[card] for card in machine.cards if card in masks}
    warnings = made.warnings if made.masks else list(limited(groups, pools, name, strategy.MAX_CORES)) if strategy.MAX_CORES else []
    repaired = Pools(made.strategy, pools, warnings=warnings, floor=floor)
    return repaired, [*_told(name, filled), *_sentences(made.strategy, defects, pools, how)]


def _divisions(groups: Groups, strategy: Strategy, floor: int, auto: bool) -> Iterator[Division]:
    """Yield the divisions over all cards that hold the invariants: of near nodes, and with others where these are too few."""
    everybody, most = set(groups.home), _most(groups.machine, strategy)
    near = groups.divide((), strategy.USE_ADJACENT_NODES, most)
    complete = set(near) == everybody and not violations(groups, near, everybody)
    smallest = min(map(int.bit_count, near.values())) if complete else 0
    if complete:
        yield Division(BY_NODE, near, goals.score(groups, near, floor))
    if complete and smallest >= floor and not any(goals.remote(groups, near)) or not (auto or strategy.USE_ADJACENT_NODES):
        return
    borrowed = Borrowing(groups, strategy.USE_ADJACENT_NODES, most).division(max(floor, smallest))
    if borrowed and not violations(groups, borrowed, everybody):
        yield Division(BORROWED, borrowed, goals.score(groups, borrowed, floor))


def _best(groups: Groups, divisions: Iterable[Division], floor: int) -> Division:
    """Return the best division. The pools in force, without CPUs that are offline, are one where they hold the invariants and
    divide the same CPUs.
    """
    applied = {card: cpus & groups.machine.usable for card, cpus in groups.machine.in_force.items()}
    best = min(divisions, key=lambda division: division.score)
    same = set(applied) == set(best.masks) and union(applied.values()) == union(best.masks.values())
    if not same or violations(groups, applied, applied):
        return best
    return min(best, Division(IN_FORCE, applied, goals.score(groups, applied, floor)), key=lambda division: division.score)


def _most(machine: Machine, strategy: Strategy) -> int | None:
    """Return the largest share in units, None where there is no limit."""
    units = machine.threads_per_core if machine.smt == "threads" else 1
    return strategy.MAX_CORES and max(strategy.MAX_CORES * units, *map(machine.least, machine.cards))


def _closer(groups: Groups, made: Pools, divisions: list[Division]) -> Pools:
    """Return a division whose CPUs are less remote than the published ones and whose smallest pool is no smaller, else the published pools.

    ``kept`` says what a more local division would cost.
    """
    floor = min(map(int.bit_count, made.masks.values()))
    score = published = goals.score(groups, made.masks, floor)
    taken = replace(made, floor=floor)
    if divisions:
        how, masks, score = _best(groups, divisions, floor)
        if score[:3] < published[:3]:
            pools = {card: masks[card] for card in groups.machine.cards if card in masks}
            how = how.replace(BY_NODE, "the near nodes were divided")
            closer = _nearer(groups, (made.masks, published.remote), (pools, score.remote), how)
            taken = Pools(made.strategy, pools, warnings=made.warnings, closer=closer, floor=floor)
        else:
            score = published
    for _how, masks, found in divisions:
        if found.shortfall and found.remote < score.remote:
            taken.kept = (
                f"a division with {percent(local_share(groups, masks))} local CPUs would shrink the smallest pool from {floor} to "
                f"{floor - found.shortfall} CPUs"
            )
    return taken


def _nearer(groups: Groups, before: tuple[Mapping[Card, int], int], after: tuple[Mapping[Card, int], int], how: str) -> str:
    """Return what is better about pools, which come with their distances of remote CPUs."""
    was, now = (local_share(groups, pools) for pools, _remote in (before, after))
    if now > was:
        return f"{percent(was)} of the CPUs would be local to their NPU. Instead {how}, which gives {percent(now)}"
    return f"The distances of remote CPUs would add up to {before[1]}. Instead {how}, which gives {after[1]}"


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
