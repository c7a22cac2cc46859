# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose between what a strategy publishes, divisions of the whole cores near to the cards, and the pools in force.

A division by nodes divides the whole cores of every NUMA node, and of the nodes without cards near to it, over the cards of the node.
Where these are too few, cards take cores of other nodes. Which of the divisions is taken follows from :mod:`_plan.goals`: with ``auto``
always, else only where the published one breaks an invariant, or other pools are in force.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import FAR
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.goals import UNEQUAL_CORES, Violation, contradictions, violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import limits, local_share, percent
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy

PUBLISHED = "the published pools"
BY_NODE = "the cores near each card were divided evenly"
ANYWHERE = "all cores were divided evenly, because no NUMA node is known"
BORROWED = "cards with too few near CPUs take whole cores of the nearest nodes that can spare them"
IN_FORCE = "the pools in force were kept"
FEW = 8
"""On machines of so many NUMA nodes, a larger smallest pool is looked for even if cores have different numbers of CPUs."""
SHOWN = 4
"""So many cards are named with their CPUs in a sentence, and fewer defects of one kind are listed one by one."""


class Division(NamedTuple):
    how: str
    masks: Mapping[Card, int]
    score: goals.Score


class Published(NamedTuple):
    """What a strategy publishes, what is wrong with that, and sentences on what it was given instead of what is missing."""

    made: Pools
    defects: list[Violation]
    floor: int
    substitutes: list[str]


def repaired(groups: Groups, name: str, strategy: Strategy, requested: Collection[Card], auto: bool) -> tuple[Pools, list[str]]:
    """Return pools for all cards, and a sentence for every defect of the published ones.

    With ``auto`` it is a defect, too, that another division is better.

    Where the host cannot give every card as much as it needs, groups with too few CPUs have no pools; if cards of them are requested,
    that is a ``ValueError``.
    """
    machine = groups.machine
    given = _published(groups, name, strategy)
    if not given.defects and (not auto or _is_best(groups, given.made.masks)) and machine.in_force in ({}, given.made.masks):
        return replace(given.made, floor=given.floor), given.substitutes
    neighbours = strategy.adjacent_nodes or auto and groups.reach <= FAR
    most = None
    if strategy.max_cores and not auto:
        units = machine.threads_per_core if machine.smt == "threads" else 1
        most = max(strategy.max_cores * units, *map(machine.least, machine.cards))
    made = list(_divisions(groups, given, neighbours, most, auto))
    floor = given.floor or min((min(map(int.bit_count, masks.values())) for _how, masks in made), default=0)
    divisions = [Division(how, masks, goals.score(groups, masks, floor)) for how, masks in made]
    best = min(divisions, key=lambda division: division.score, default=None)
    if best and machine.in_force:
        best = _stable(groups, best, floor)
    if best is None:
        best = Division(BY_NODE, masks := groups.divide(requested, neighbours, most), goals.score(groups, masks, floor))
    return _explained(groups, name, given, divisions, best, floor)


def _stable(groups: Groups, best: Division, floor: int) -> Division:
    """Return the pools in force with as few changes as possible, unless the best division moves less.

    They may be smaller than ``floor``, and than the smallest of them was, by less than a core.
    """
    machine = groups.machine
    threads = machine.threads_per_unit
    enough = min(floor, *map(int.bit_count, machine.in_force.values())) - threads + 1
    if not (stable := adapted(Groups(machine, groups.reach, staying=True), best.masks, enough)):
        return best
    kept = Division(IN_FORCE, stable, goals.score(groups, stable, enough))
    return min(best._replace(score=goals.score(groups, best.masks, enough)), kept, key=lambda division: division.score)


def adapted(groups: Groups, new: Mapping[Card, int], floor: int) -> dict[Card, int] | None:
    """Return the pools in force without CPUs that may not be used, and with those of a ``new`` plan that could not be used before.

    Pools take single cores from others only where they have fewer than ``floor`` CPUs (or, if that cannot be met, fewer than the smallest
    pool of the ``new`` plan), or where those of a group differ by more than a core. None where there is no plan in force for these
    cards, or where that breaks an invariant.
    """
    machine = groups.machine
    if not new or set(machine.in_force) != set(new):
        return None
    remaining = {card: machine.in_force[card] & machine.usable for card in new}
    if remaining == new:
        return remaining
    free = union(new.values()) & ~union(remaining.values())
    back = free & ~machine.divided
    smallest = min(map(int.bit_count, new.values()))
    for least, unused in product(dict.fromkeys([floor, min(floor, smallest)]), dict.fromkeys([back, 0])):
        needs = {card: max(machine.least(card), least) for card in remaining}
        pools = dict(remaining)
        _give(groups, pools, new, unused, needs)
        _give(groups, pools, {}, free & ~unused, needs)
        _level(groups, pools, needs)
        if all(broken.kind == UNEQUAL_CORES for broken in violations(groups, pools, pools)):
            return pools
    return None


def _give(groups: Groups, pools: dict[Card, int], new: Mapping[Card, int], free: int, needs: Mapping[Card, int]) -> None:
    """Give free cores to pools that are too small, or else to the smallest that they are local to; free threads to that with their core.

    Without pools of a ``new`` plan, only pools that are too small get any.
    """
    machine = groups.machine
    owners = {unit: card for card, cpus in pools.items() for unit in machine.each_unit(cpus)} if machine.smt == "cores" else {}
    for unit in machine.each_unit(free):
        cpus = machine.joined(1 << unit)
        if unit in owners and new:
            pools[owners[unit]] |= cpus & free
            continue
        near = [card for place, cards in groups.alike.items() if groups.local[place] & cpus for card in cards]
        small = [card for card in pools if pools[card].bit_count() < needs[card]]
        takers = [card for card in small if card in near] or small
        if not takers and new:
            takers = [card for card in near or new if pools[card].bit_count() < max(new[other].bit_count() for other in near or [card])]
        if takers and not (unit in owners and owners[unit] not in takers):
            taker = min(takers, key=lambda card: (pools[card].bit_count(), not new.get(card, 0) & cpus, card.id))
            pools[taker] |= cpus & free


def _level(groups: Groups, pools: dict[Card, int], needs: Mapping[Card, int]) -> None:
    """Let pools that are too small take cores, one by one, from the largest of their group, or else of the nearest that can spare one."""
    machine = groups.machine
    places = {card: place for place, cards in groups.alike.items() for card in cards}
    for _step in range(machine.usable.bit_count()):
        units = {card: machine.number(cpus) for card, cpus in pools.items()}
        largest = {place: max(cards, key=units.__getitem__) for place, cards in groups.alike.items()}
        smallest = {place: min(cards, key=units.__getitem__) for place, cards in groups.alike.items()}
        taker = min(pools, key=lambda card: pools[card].bit_count() - needs[card])
        if pools[taker].bit_count() < needs[taker]:
            donors = [card for card in largest.values() if card is not taker and _spare(groups, pools[card], needs[card])]
        else:
            uneven = [place for place in largest if units[largest[place]] - units[smallest[place]] > 1][:1]
            taker, donors = smallest[uneven[0]] if uneven else taker, [largest[place] for place in uneven]
        if not donors:
            return
        place = places[taker]
        donor = min(donors, key=lambda card: (places[card] != place and machine.distance(place, places[card]), -units[card]))
        if not (spare := _spare(groups, pools[donor], needs[donor])):
            return
        local = [unit for unit in spare if groups.local[place] >> unit & 1] or spare
        cpus = machine.joined(1 << max(local, key=lambda unit: (machine.joined(1 << unit).bit_count(), unit))) & pools[donor]
        pools[donor] &= ~cpus
        pools[taker] |= cpus


def _spare(groups: Groups, cpus: int, need: int) -> list[int]:
    """Return the units of a pool of which it can give one away."""
    machine, size = groups.machine, cpus.bit_count()
    return [unit for unit in machine.each_unit(cpus) if size - machine.joined(1 << unit).bit_count() >= need]


def _published(groups: Groups, name: str, strategy: Strategy) -> Published:
    """Return what a strategy publishes for the CPUs that are online. Its floor is that of the rule for what npu-smi prints."""
    machine = groups.machine
    everybody = frozenset(groups.home)
    made, failure, offline = _attempt(machine, name, strategy, everybody)
    floor = 0
    if filled := [card for card in machine.cards if strategy.reads_affinity and not card.affinity and machine.own_cpus(card)]:
        floor = goals.smallest_share(made.masks, everybody)
        for card in filled:
            card.affinity = text_of(machine.own_cpus(card))
        made, failure, offline = _attempt(machine, name, strategy, everybody)
    judged = groups
    if made.masks and made.masks == machine.in_force:
        judged = Groups(replace(machine, in_force={}), groups.reach)  # what was kept as published once is kept again
    defects = violations(judged, made.masks, everybody) if made.masks else []
    if failure:
        defects = [Violation("error", f"it fails: {failure}", list(groups.home))]
    elif not made.masks:
        defects = [Violation("nothing", f"it binds nothing: {warning.rstrip('.')}", list(groups.home)) for warning in made.warnings]
    elif strategy.reads_affinity and made.strategy == name:
        defects += contradictions(machine)
    silent = f"npu-smi prints no CPUs for {cards_named(filled)}. Instead those of the kernel's NUMA nodes were taken." if filled else ""
    absent = f"it fails: {offline}. Instead the CPUs that are online were divided." if offline else ""
    substitutes = [f"Published {name}: {text}" for text in (silent, absent) if text]
    return Published(made, defects, floor or goals.smallest_share(made.masks, everybody), substitutes)


def _attempt(machine: Machine, name: str, strategy: Strategy, everybody: Collection[Card]) -> tuple[Pools, str, str]:
    """Return what a strategy makes of the CPUs that are online, why it fails there, and why it fails with those that are not."""
    offline = ""
    for given in (machine, replace(machine, offline="")) if machine.offline else (machine,):
        try:
            return strategy.pools(given, everybody), "", offline
        except ValueError as error:
            offline = str(error).rstrip(".")
    return Pools(name, {}), offline, ""


def _is_best(groups: Groups, pools: Mapping[Card, int]) -> bool:
    """Return whether no division is better than published pools, as far as that can be told without making one."""
    if any(goals.remote(groups, pools)) or not groups.anywhere and not all(card.numa in groups.machine.nodes for card in pools):
        return False
    sizes = goals.score(groups, pools)
    best = limits(groups, -sizes.small, True)
    return bool(best and not sizes.split and not sizes.idle and -sizes.small >= best.smallest and sizes.uneven <= best.uneven)


def _divisions(
    groups: Groups, given: Published, neighbours: bool, most: int | None, auto: bool
) -> Iterator[tuple[str, Mapping[Card, int]]]:
    """Yield the divisions over all cards that hold the invariants: as published, of near nodes, and with others where these are too few."""
    everybody = set(groups.home)
    if not given.defects and set(given.made.masks) == everybody:
        yield PUBLISHED, given.made.masks
        if not auto:
            return
    near = groups.divide((), neighbours, most)
    complete = set(near) == everybody and not violations(groups, near, everybody)
    if complete:
        yield ANYWHERE if groups.anywhere else BY_NODE, near
    if groups.anywhere or not (auto or neighbours):
        return
    smallest = min(map(int.bit_count, near.values())) if complete else 0
    target = max(given.floor, smallest)
    is_near = complete and smallest >= given.floor and not any(goals.remote(groups, near))
    if neighbours and groups.reach > FAR and not most:
        best = limits(groups, smallest if is_near else given.floor or smallest, is_near)
        target = max(target, best.smallest) if best and (best.exact or len(groups.usable) <= FEW) else target
    if is_near and smallest >= target:
        return
    borrowed = Borrowing(groups, neighbours, most).division(target)
    if borrowed and not violations(groups, borrowed, everybody):
        yield BORROWED, borrowed


def _explained(
    groups: Groups, name: str, given: Published, divisions: list[Division], best: Division, floor: int
) -> tuple[Pools, list[str]]:
    """Return the best division, and sentences on what is wrong with the published one."""
    how, masks, score = best
    made, sentences = given.made, list(given.substitutes)
    pools = {card: masks[card] for card in groups.machine.cards if card in masks}
    taken = Pools(made.strategy, pools, warnings=made.warnings if made.masks else [], floor=floor)
    published = next((division for division in divisions if division.how == PUBLISHED), None)
    if pools == made.masks:
        taken.printed = made.printed
    elif given.defects:
        sentences += _sentences(made.strategy, given.defects, pools, how)
    elif how == IN_FORCE:
        if min(divisions, key=lambda division: (division.score[:2], division.score[3:])).score.moved:
            taken.kept = "the pools in force were kept, because work is running there; npu_affinity_replan: true divides again"
    elif published:
        taken.closer = _better(groups, published, best)
        sentences.append(f"Published {name}: {taken.closer}.")
    for _how, other, other_score in divisions:
        if other_score.shortfall and other_score.remote < score.remote and not taken.kept:
            taken.kept = (
                f"a division with {percent(local_share(groups, other))} local CPUs would shrink the smallest pool from {floor} to "
                f"{floor - other_score.shortfall} CPUs"
            )
    return taken, sentences


def _better(groups: Groups, published: Division, best: Division) -> str:
    """Return the first goal by which a division is better than the published one, with numbers."""
    was, now = published.score, best.score
    before, after = (local_share(groups, division.masks) for division in (published, best))
    if was.remote != now.remote and before != after:
        would, reached = f"{percent(before)} of the CPUs would be local to their card", f"gives {percent(after)}"
    elif was.remote != now.remote:
        would, reached = f"The distances of remote CPUs would add up to {was.remote}", f"gives {now.remote}"
    elif was.split != now.split:
        would, reached = f"{was.split} cores would be split", f"gives {now.split}"
    elif was.small != now.small:
        idle = f", and {was.idle} CPUs near the cards idle" if was.idle > now.idle else ""
        would, reached = f"The smallest pool would have {-was.small} CPUs{idle}", f"gives {-now.small}"
    elif was.idle != now.idle:
        would, reached = f"{was.idle} CPUs near the cards would be idle", f"leaves {now.idle}"
    else:
        would, reached = f"The pools of NUMA nodes would differ by {was.uneven} CPUs", f"gives {now.uneven}"
    return f"{would}. Instead {best.how}, which {reached}"


def _sentences(strategy: str, defects: Collection[Violation], pools: Mapping[Card, int], how: str) -> Iterator[str]:
    """Yield what the published pools break and what was done instead; of many defects of one kind, the first with its numbers."""
    for kind in dict.fromkeys(defect.kind for defect in defects):
        alike = [defect for defect in defects if defect.kind == kind]
        listed = len(alike) if len(alike) < SHOWN else 1
        for defect in alike[:listed]:
            yield f"Published {strategy}: {defect.sentence}. Instead {_outcome(defect.cards, pools, how)}."
        if others := {card: None for defect in alike[listed:] for card in defect.cards}:
            yield f"Published {strategy}: the same defect on {cards_named(others)}. Instead {_outcome(others, pools, how)}."


def _outcome(cards: Iterable[Card], pools: Mapping[Card, int], how: str) -> str:
    bound = [card for card in cards if card in pools]
    if len(bound) <= SHOWN:
        return ", ".join(f"{card.name} has {text_of(pools[card])}" for card in bound) or "they have no pool, because their node has too few"
    sizes = sorted({pools[card].bit_count() for card in bound})
    return f"{how}, {' or '.join(map(str, sizes))} each"
