# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind would move on a host: the plan in force beside the one that would follow it.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import keep

Entry = Mapping[str, Any]
SETS = {"pool": "CPUs", "irq": "irq", "acl": "acl", "release": "release", "mems": "memory nodes"}


def moves(applied: Entry | None, plan: Entry, users: Iterable[tuple[str, Sequence[Any]]] = ()) -> list[str]:
    """Return a sentence for every NPU, service, workload and vNPU that a bind of ``plan`` would move; none on a first bind.

    ``users`` are names with the NPUs that the settings name for them, which are resolved in both plans.
    """
    if not applied or not applied.get("npus"):
        return []
    before = {**applied, "npus": [_with_slice(entry) for entry in applied["npus"]]}
    records = [*before["npus"], *(before.get("lost") or ())]
    entries = [*plan["npus"], *(plan.get("lost") or ())]
    if not all(entry.get("pci") for entry in [*records, *entries]):
        return []
    cards = {keep.card_of(entry): entry for entry in entries}
    matched = {cards[card]["slice"]: record for card, record in keep.match(cards, records).items()}
    sentences = [sentence for entry in entries for sentence in _of_npu(matched.get(entry["slice"]), entry)]
    kept = [id(record) for record in matched.values()]
    sentences += [
        f"A bind takes {title(record)} (PCI {record['pci']}, CPUs {record['pool']}) out of the plan."
        for record in before["npus"]
        if id(record) not in kept
    ]
    for user, names in users:
        then, _unknown = members(before, names)
        now, _unknown = members(plan, names)
        if then and now and [id(record) for record in then] != [id(matched.get(entry["slice"])) for entry in now]:
            sentences.append(f"A bind moves {user} from {_places(then)} to {_places(now)}.")
    return sentences


def _with_slice(entry: Entry) -> Entry:
    return {"slice": f"{entry.get('kind') or 'npu'}-{entry['id']}.slice", **entry}


def _of_npu(record: Entry | None, entry: Entry) -> Iterator[str]:
    name = f"{title(entry)} (PCI {entry['pci']})"
    if record is None:
        yield f"A bind adds {name} with CPUs {entry['pool']}."
        return
    changed = [key for key in SETS if key in record and record[key] != entry.get(key)]
    if record["slice"] != entry["slice"]:
        yield f"A bind moves {name} from {record['slice']} with CPUs {record['pool']} to {entry['slice']} with CPUs {entry['pool']}."
    elif "pool" in changed:
        yield f"A bind moves {name} from CPUs {record['pool'] or 'of nobody'} to CPUs {entry['pool'] or 'of nobody'}."
    elif changed:
        then, now = (", ".join(f"{SETS[key]} {sets[key] or 'none'}" for key in changed) for sets in (record, entry))
        yield f"A bind changes {name} from {then} to {now}."


def _places(entries: Iterable[Entry]) -> str:
    return " and ".join(f"{title(entry)} (PCI {entry['pci']}, CPUs {entry['pool'] or 'of nobody'})" for entry in entries)
