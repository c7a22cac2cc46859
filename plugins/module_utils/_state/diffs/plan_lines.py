# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two texts of plan.json compared, one line for each NPU: what it has now, and what it gets."""

from __future__ import annotations

from typing import Any, Dict

from ..plan_file import memory_nodes, parsed

Entry = Dict[str, Any]
"""An NPU of a plan, or a plan."""
_SETS = (
    ("pool", "CPUs"),
    ("irq", "irq"),
    ("main", "main"),
    ("kv", "kv"),
    ("acl", "acl"),
    ("release", "release"),
    ("memory_nodes", "memory nodes"),
)
_OF_HOST = (("strategy", "strategy"), ("cpus", "CPUs"), ("housekeeping", "housekeeping"), ("poll", "poll threads"))
_TOLD = {"about", "npus", "lost"} | {key for key, _word in _OF_HOST}


def lines(before: str | None, after: str | None) -> list[str]:
    """Return what differs between two texts of plan.json, either of which can be None."""
    now, then = parsed(before), parsed(after)
    old, new = _entries(now), _entries(then)
    matched = [(_find(entry, old), entry) for entry in new]
    known = [id(record) for record, _entry in matched if record]
    told = [_of_host(now, then)] + [_of_npu(record, entry) for record, entry in matched]
    told += ["- %s" % _title(record) + _all_of(record) for record in old if id(record) not in known]
    others = sorted(key for key in set(now) | set(then) if key not in _TOLD and _differ(now, then, key))
    return [line for line in told if line] or ["~ only %s" % " and ".join(others)] * bool(others)


def _entries(plan: Entry) -> list[Entry]:
    """Return the NPUs of a plan, with a state that says whether they can be found."""
    return [
        dict(entry, state=state, memory_nodes=memory_nodes(entry))
        for key, state in (("npus", "found"), ("lost", "not found"))
        for entry in plan.get(key) or []
        if isinstance(entry, dict)
    ]


def _find(entry: Entry, records: list[Entry]) -> Entry | None:
    """Return the record of an NPU by PCI function and chip, for ids close up."""
    same = (record for record in records if str(record.get("pci")).lower() == str(entry.get("pci")).lower())
    return next((record for record in same if record.get("chip") == entry.get("chip")), None)


def _of_host(now: Entry, then: Entry) -> str:
    if not (now and then):
        parts = ["%s %s" % (word, plan[key]) for plan in (now, then) for key, word in _OF_HOST if plan.get(key)]
        return "%s %s" % ("+" if then else "-", ", ".join(parts)) if parts else ""
    parts = ["%s %s -> %s" % (word, now.get(key) or "none", then.get(key) or "none") for key, word in _OF_HOST if _differ(now, then, key)]
    return "~ " + ", ".join(parts) if parts else ""


def _differ(now: Entry, then: Entry, key: str) -> bool:
    return (now.get(key) or None) != (then.get(key) or None)


def _of_npu(record: Entry | None, entry: Entry) -> str:
    if record is None:
        return "+ %s" % _title(entry) + _all_of(entry)
    keys = _SETS + (("id", "id"), ("slice", "slice"), ("state", "state"))
    parts = [
        "%s %s -> %s" % (word, _text(record.get(key)), _text(entry.get(key)))
        for key, word in keys
        if _text(record.get(key)) != _text(entry.get(key))
    ]
    return "~ %s: %s" % (_title(entry), ", ".join(parts)) if parts else ""


def _text(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _title(entry: Entry) -> str:
    kind, _dash, number = str(entry.get("slice") or "").partition("-")
    name = "%s %s" % (kind.upper(), number.partition(".")[0]) if number else "NPU %s" % entry.get("id")
    return "%s %s" % (name, entry.get("pci") or "without PCI function")


def _all_of(entry: Entry) -> str:
    parts = ["%s %s" % (word, entry[key]) for key, word in _SETS if entry.get(key)]
    return ": " + ", ".join(parts) if parts else ""
