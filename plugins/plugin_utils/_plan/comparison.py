# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies side by side on one host, each as published and repaired."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.table import REMARK_WIDTH, columns
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, as_cpulist, mask, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine as _machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import options as _options
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.goals import sums
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import percent, quality

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

Row = dict[str, Any]
DEFAULT = ("auto", "even_split")
REASON_WIDTH = 96
"""So much of a refusal is shown in a table; the data has all of it."""


def count(cpulist: str) -> str:
    return str(mask(cpulist).bit_count())


MEASURES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "overlap": lambda quality: count(quality["overlap"]),
    "split cores": lambda quality: str(quality["split_cores"]),
    "local": lambda quality: percent(quality["local"]),
    "own node": lambda quality: percent(quality["own_node"]),
    "distance": lambda quality: "?" if quality["distance"] is None else f"{quality['distance']:g}",
    "caches": lambda quality: "?" if quality["caches"] is None else f"{quality['caches']:g}",
    "balance": lambda quality: str(quality["balance"]),
    "smallest": lambda quality: str(quality["smallest"]),
    "idle": lambda quality: count(quality["idle"]),
    "without pool": lambda quality: str(len(quality["missing"])),
}
"""What tables show of a measurement, by heading; CPUs as their number."""


def machine_of(topology: Topology, cpus: object = None, housekeeping: object = "", smt: object = "cores", min_cpus: object = 1) -> Machine:
    """Return the machine of a topology with the options of a plan. ``ValueError`` as a plan raises it."""
    given = _options.Given(cpus=cpus, housekeeping=housekeeping, smt=smt, min_cpus=min_cpus)
    return _machine.read(topology, _options.checked(planner.STRATEGIES, given))


def measure(groups: Groups, pools: Mapping[Card, int], held: int = 0) -> dict[str, Any]:
    """Return the quality of pools, as masks, and the further measures that RETURN of filter compare describes."""
    machine = groups.machine
    given = overlap = counted = distances = 0
    cards: list[Row] = []
    for card in machine.cards:
        cpus = pools.get(card, 0)
        overlap |= given & cpus
        given |= cpus
        number, total = _distance(machine, card, cpus)
        counted += number
        distances += total
        near = groups.local_cpus(card)
        cards.append(
            {
                "id": card.id,
                "name": card.name,
                "numa": card.numa,
                "pool": text_of(cpus),
                "cpus": cpus.bit_count(),
                "local": None if near is None or not cpus else round((cpus & near).bit_count() / cpus.bit_count(), 3),
                "distance": round(total / number, 1) if number else None,
                "caches": sum(1 for cache in machine.caches if cache & cpus) or None,
            }
        )
    caches = [card["caches"] for card in cards if card["caches"]]
    return {
        **quality(groups, {card: cpus for card, cpus in pools.items() if cpus}, held),
        "overlap": text_of(overlap),
        "split_cores": union(machine.cores(machine.other_threads(cpus)) for cpus in pools.values()).bit_count(),
        "distance": round(distances / counted, 1) if counted else None,
        "caches": round(sum(caches) / len(caches), 1) if caches else None,
        "unusable": text_of(given & ~machine.usable),
        "missing": [card.name for card in machine.cards if not pools.get(card)],
        "npus": cards,
    }


def _distance(machine: Machine, card: Card, cpus: int) -> tuple[int, int]:
    """Return the number of CPUs whose distance to the card is known, and the sum of these distances."""
    node = machine.nodes.get(NO_NODE if card.numa is None else card.numa)
    distances = node.distances if node else {}
    others = (other for other in machine.nodes.values() if other.id in distances)
    return sums(((other.cpus & cpus).bit_count(), distances[other.id]) for other in others)


def measured(pools: object, topology: Topology, cpus: object = None) -> dict[str, Any]:
    """Return :func:`measure` of a plan, or of cpulists by card: logic ids, or ``npu-0`` and ``gpu-0`` where both kinds have an id.

    ``cpus`` are those that can be divided; without them a plan's own, else all online. Raises ``ValueError`` for a card that the host
    has not, and for what is neither a plan nor such a mapping.
    """
    if not isinstance(pools, Mapping):
        raise ValueError(f"pools: expected a plan, or cpulists by logic id such as {{0: '0-23'}}; got {pools!r}")
    held = 0
    if "npus" in pools:
        try:
            held = union(mask(entry["pool"]) for entry in pools.get("lost") or ())
            cpus = pools["cpus"] or None if cpus is None else cpus
            pools = {f"{entry['slice'].partition('-')[0]}-{entry['id']}": entry["pool"] for entry in pools["npus"]}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("pools: expected a plan of npu.affinity.plan, with cpus, and npus with id, pool and slice") from error
    machine = machine_of(topology, cpus)
    masks: dict[Card, int] = {}
    for name, value in pools.items():
        cards = [card for card in machine.cards if str(name) in (str(card.id), f"{card.kind}-{card.id}")]
        if len(cards) != 1:
            existing = ", ".join(sorted(f"{card.kind}-{card.id}" for card in machine.cards)) or "none"
            raise ValueError(f"pools: {name!r} names {len(cards) or 'no'} cards of the host; it has {existing}")
        masks[cards[0]] = mask(as_cpulist(value, f"pool of {cards[0].name}"))
    return measure(Groups(machine), masks, held)


def compare(
    topology: Topology,
    strategies: Iterable[str] | str = DEFAULT,
    cpus: object = None,
    housekeeping: object = "",
    smt: object = "cores",
    min_cpus: object = 5,
) -> dict[str, Any]:
    """Return what RETURN of filter compare describes. The plan in force is not looked at.

    Raises ``ValueError`` for a wrong option or topology.
    """
    names = [strategies] if isinstance(strategies, str) else list(strategies) if isinstance(strategies, Iterable) else []
    if not names or not set(names) <= {"auto", *planner.STRATEGIES}:
        raise ValueError(f"strategies: expected some of {', '.join(('auto', *planner.STRATEGIES))}; got {strategies!r}")
    groups = Groups(machine_of(topology, cpus, housekeeping, smt, min_cpus))
    options = {"cpus": cpus, "housekeeping": housekeeping, "smt": smt, "min_cpus": min_cpus, "replan": True}
    rules = [_rule(topology, groups, name, repair, options) for name in names for repair in (False, True)]
    outcomes = _label(rules)
    differences = [
        {"name": card.name, "numa": card.numa, "pools": pools}
        for number, card in enumerate(groups.machine.cards)
        if len(set((pools := {label: rule["quality"]["npus"][number]["pool"] for label, rule in outcomes.items()}).values())) > 1
    ]
    return {"rules": rules, "differences": differences, "table": list(_lines(rules, outcomes, differences))}


def _rule(topology: Topology, groups: Groups, name: str, repair: bool, options: Mapping[str, Any]) -> Row:
    row: Row = {
        "label": None,
        "rule": f"{name}, {'repaired' if repair else 'published'}",
        "requested": name,
        "strategy": None,
        "repair": repair,
        "refused": None,
        "quality": None,
        "repaired": [],
        "warnings": [],
    }
    try:
        plan = planner.plan(topology, strategy=name, repair=repair, **options)
    except ValueError as error:
        return {**row, "refused": str(error)}
    if plan["strategy"] != name:
        row["rule"] = f"{name} ({plan['strategy']}), {'repaired' if repair else 'published'}"
    row.update({"strategy": plan["strategy"], "repaired": plan["repaired"], "warnings": list(map(str, plan["warnings"]))})
    if groups.machine.cards and not plan["npus"]:
        return {**row, "refused": row["warnings"][-1]}
    slices: dict[str, Card] = {card.slice: card for card in groups.machine.cards}
    return {**row, "quality": measure(groups, {slices[entry["slice"]]: mask(entry["pool"]) for entry in plan["npus"]})}


def _label(rules: Sequence[Row]) -> dict[str, Row]:
    """Give rules with the same pools the same letter, and return the first rule of each."""
    outcomes: dict[str, Row] = {}
    for rule in rules:
        if rule["quality"]:
            pools = rule["quality"]["npus"]
            same = (label for label, other in outcomes.items() if other["quality"]["npus"] == pools)
            rule["label"] = next(same, ascii_lowercase[len(outcomes)])
            outcomes.setdefault(rule["label"], rule)
    return outcomes


def _lines(rules: Sequence[Row], outcomes: Mapping[str, Row], differences: Sequence[Row]) -> Iterator[str]:
    """Yield the table of measures, that of differing pools, and what repair changed."""
    headings = list(MEASURES)
    if not any(rule["quality"] and rule["quality"]["missing"] for rule in rules):
        headings.remove("without pool")
    measured = [rule for rule in rules if rule["quality"]]
    cells = [(rule["label"], rule["rule"], *(MEASURES[name](rule["quality"]) for name in headings)) for rule in measured]
    if cells:
        yield from columns([("", "rule", *headings), *cells])
    for rule in rules:
        if rule["refused"]:
            yield f"{rule['rule']} refuses: {textwrap.shorten(rule['refused'], REASON_WIDTH, placeholder=' …')}"
    if differences:
        yield ""
        rows = [
            (entry["name"], "?" if entry["numa"] is None else str(entry["numa"]), *(pool or "none" for pool in entry["pools"].values()))
            for entry in differences
        ]
        yield from columns([("card", "NUMA", *outcomes), *rows])
    first = next(iter(outcomes.values()), None)
    others = len(first["quality"]["npus"]) - len(differences) if first else 0
    if others and len(measured) > 1:
        yield f"{'the other ' if differences else 'all '}{others} have the same pool by every rule"
    yield ""
    for published, repaired in zip(rules[::2], rules[1::2], strict=True):
        yield f"repair of {published['requested']}: {_effect(published, repaired)}"
        for sentence in repaired["repaired"]:
            yield from textwrap.wrap(
                sentence, REMARK_WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )


def _effect(published: Row, repaired: Row) -> str:
    """Return what repair changed, in words."""
    if repaired["refused"]:
        return "refuses" + ("" if published["refused"] else " what is published")
    if published["refused"]:
        return "pools where the published rule has none"
    if published["label"] == repaired["label"]:
        return "nothing to repair in the pools"
    values = [(name, show(published["quality"]), show(repaired["quality"])) for name, show in MEASURES.items()]
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in values if old != new) or "other pools, as good by these measures"
