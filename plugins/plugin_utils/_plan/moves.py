# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind would move on a host: the plan in force next to the one that would follow it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import keep

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, PlanEntry

SETS = {"pool": "CPUs", "irq": "irq", "kv": "kv", "acl": "acl", "release": "release", "memory_nodes": "memory nodes"}

Pair = tuple["PlanEntry | None", "PlanEntry | None"]
"""An NPU in the plan in force, and in the plan that would follow; None where it has no entry."""


def pairs(applied: Plan | None, plan: Plan) -> list[Pair]:
    """Return the NPUs of both plans, matched by PCI function and chip, those that go last; none where that cannot be told."""
    before = with_slices(applied)["npus"] if applied else []
    entries = keep.records_of(plan)
    cards = {keep.card_of(entry): entry for entry in entries}
    by_card = keep.match(cards, [*before, *((applied or {}).get("lost") or ())]) if before else None
    if by_card is None:
        return []
    matched = {cards[card]["slice"]: record for card, record in by_card.items()}
    kept = [id(record) for record in matched.values()]
    return [(matched.get(entry["slice"]), entry) for entry in entries] + [(record, None) for record in before if id(record) not in kept]


@remark("NPU_BIND_EFFECT")
def moves(applied: Plan | None, plan: Plan, users: Iterable[tuple[str, Sequence[Any]]] = ()) -> list[str]:
    """Return a sentence for the NPUs that a bind of ``plan`` would move, and one for every service, workload and vNPU.

    None on a first bind.

    ``users`` are names with the NPUs that the settings name for them, which are resolved in both plans.
    """
    both = pairs(applied, plan)
    if not applied or not both:
        return []
    sentences = _sentence(step for pair in both for step in _steps(*pair))
    before = with_slices(applied)
    matched = {entry["slice"]: record for record, entry in both if entry}
    for user, names in users:
        then, _unknown = members(before, names)
        now, _unknown = members(plan, names)
        if then and now and list(then) != [matched[entry["slice"]] for entry in now]:
            sentences.append(f"A bind moves {user} from {_places(then)} to {_places(now)}.")
    return sentences


def _sentence(steps: Iterable[tuple[str, str]]) -> list[str]:
    """Return what a bind does to all NPUs as one sentence: ``A bind moves NPU 0 …, NPU 1 …; adds NPU 2 …``; none where it does nothing."""
    done: dict[str, list[str]] = {}
    for verb, what in steps:
        done.setdefault(verb, []).append(what)
    return ["A bind " + "; ".join(f"{verb} {', '.join(whats)}" for verb, whats in done.items()) + "."] if done else []


def with_slices(applied: Plan) -> Plan:
    """Return a plan in force whose entries all have a slice, which one that was edited by hand can lack."""
    npus: Any = [{"slice": f"{entry.get('kind') or 'npu'}-{entry['id']}.slice", **entry} for entry in applied.get("npus") or ()]
    return {**applied, "npus": npus}


@remark("NPU_BIND_EFFECT")
def of_npu(record: PlanEntry | None, entry: PlanEntry | None) -> list[str]:
    """Return the sentence on one of :func:`pairs`, where it differs."""
    return _sentence(_steps(record, entry))


def _steps(record: PlanEntry | None, entry: PlanEntry | None) -> Iterator[tuple[str, str]]:
    """Yield what a bind does to one of :func:`pairs`, as a verb and what follows it."""
    if entry is None:
        if record is not None:
            yield "takes", f"{title(record)} (PCI {record['pci']}, CPUs {record['pool']}) out of the plan"
        return
    name = f"{title(entry)} (PCI {entry['pci']})"
    if record is None:
        yield "adds", f"{name} with CPUs {entry['pool']}"
        return
    keys = [key for key in SETS if key in record or key == "kv"]
    changed = [key for key in keys if (record.get(key) or "") != (entry.get(key) or "")]
    if record["slice"] != entry["slice"]:
        yield "moves", f"{name} from {record['slice']} with CPUs {record['pool']} to {entry['slice']} with CPUs {entry['pool']}"
    elif "pool" in changed and not entry["pool"]:
        yield "takes", f"CPUs {record['pool']} from {name}"
    elif "pool" in changed and not record["pool"]:
        yield "gives", f"CPUs {entry['pool']} to {name}"
    elif "pool" in changed:
        yield "moves", f"{name} from CPUs {record['pool']} to CPUs {entry['pool']}"
    elif changed:
        then, now = (", ".join(f"{SETS[key]} {sets.get(key) or 'none'}" for key in changed) for sets in (record, entry))
        yield "changes", f"{name} from {then} to {now}"


def _places(entries: Iterable[PlanEntry]) -> str:
    return " and ".join(f"{title(entry)} (PCI {entry['pci']}, CPUs {entry['pool'] or 'none'})" for entry in entries)
