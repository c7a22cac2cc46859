# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What remains of the plan in force when cards have dropped off the bus.

A lost card makes the logic ids of the others close up. Planned anew, everybody would get other CPUs while running. So the cards that
are still there, told by their PCI functions, keep their pools, roles, memory nodes and slices until somebody asks for a new plan.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils import _roles
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, mask_of, text_in_order, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._machine import Card, Machine, memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._options import Options

Entry = dict[str, Any]


class Kept(NamedTuple):
    """``entries`` of the plan for the cards that keep what they had, None to plan anew; ``lost`` are the entries of the others."""

    entries: dict[Card, Entry] | None
    lost: list[Entry]
    warnings: list[str]


def keep(machine: Machine, applied: Mapping[str, Any] | None, options: Options) -> Kept:
    """Return what to keep of the plan in force: nothing where no card is missing, or where ``replan`` asks for a new plan.

    ``applied`` is that plan, of which ``npus`` with ``id``, ``pci`` and ``pool`` are enough. Without PCI functions nobody can be told.
    """
    if not applied or options.replan:
        return Kept(None, [], [])
    records = [*applied.get("npus", ()), *(applied.get("lost") or ())]
    if not all(record.get("pci") for record in records) or not all(card.pci for card in machine.cards):
        return Kept(None, [], [])
    matched, strangers, missing = _match(machine.cards, records)
    if not missing:
        return Kept(None, [], [])
    gone = ", ".join(f"{_card(record).name} (PCI {record['pci']})" for record in missing)
    if why := _obstacle(machine, applied, options, matched, strangers):
        warning = f"{gone} of the plan in force cannot be found, and the others cannot keep their pools but are planned anew: {why}."
        return Kept(None, [], [warning])
    family = machine.cards[0].family if machine.cards else ""
    return Kept(
        {card: _entry(machine, card, record) for card, record in matched.items()},
        [_entry(machine, _card(record, family), record) for record in missing],
        [
            f"{gone} of the plan in force cannot be found, and the others keep their pools and slices; npu_affinity_replan: true plans "
            "anew for those that are there."
        ],
    )


def _match(cards: Iterable[Card], records: Iterable[Entry]) -> tuple[dict[Card, Entry], list[Card], list[Entry]]:
    """Return the records of the cards by PCI function, the cards that have none, and the records of nobody.

    Two chips of a card can share a function; they are told apart by chip where the records know it, else by order.
    """
    waiting = sorted(records, key=lambda record: (record.get("chip") or 0, record["id"]))
    matched = {}
    strangers = []
    for card in sorted(cards, key=lambda card: (card.chip, card.id)):
        same = [record for record in waiting if str(record["pci"]).lower() == str(card.pci).lower()]
        if not same:
            strangers.append(card)
            continue
        matched[card] = next((record for record in same if record.get("chip") == card.chip), same[0])
        waiting.remove(matched[card])
    return matched, strangers, sorted(waiting, key=lambda record: int(record["id"]))


def _obstacle(
    machine: Machine, applied: Mapping[str, Any], options: Options, matched: Mapping[Card, Entry], strangers: Sequence[Card]
) -> str:
    if strangers:
        return "the plan in force does not know " + ", ".join(f"{card.name} (PCI {card.pci})" for card in strangers)
    if different := options.differences(applied.get("options") or {}):
        return f"it was made with other values of {', '.join(different)}"
    given = 0
    for card, record in matched.items():
        pool = mask(record["pool"], f"pool of {card.name} in the plan in force")
        if pool & ~machine.usable:
            return f"CPUs {text_of(pool & ~machine.usable)} of {card.name} can no longer be used"
        if options.repair and pool & given:
            return f"it gives CPUs {text_of(pool & given)} to more than one card"
        given |= pool
    return ""


def _card(record: Entry, family: str = "") -> Card:
    """Return the card of a record, by the kind that the record or its slice says."""
    kind = record.get("kind") or ("gpu" if str(record.get("slice")).startswith("gpu-") else "npu")
    return Card(kind, int(record["id"]), record["pci"], int(record.get("chip") or 0), family, None, None)


def _entry(machine: Machine, card: Card, record: Entry) -> Entry:
    """Return an entry of the plan: what the record has, and the rest as its pool and its id give it."""
    pool = expand(record["pool"], f"pool of {card.name} in the plan in force")
    roles = _roles.split(card, pool, 1, machine.roles)
    entry = {
        "id": card.id,
        "pci": card.pci,
        "pool": record["pool"],
        **{role: text_in_order(cpus) for role, cpus in roles._asdict().items()},
        "mems": memory_nodes(machine, mask_of(pool)),
        "slice": f"{card.kind}-{record['id']}.slice",
    }
    return {key: value if key in ("id", "pci") else record.get(key, value) for key, value in entry.items()}
