# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In what two states, or two plans, differ, as lines to read: of a history, a review, a comparison, and the diff of a bind alike."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence, Tuple

from .._base.findings import noun
from .._base.table import count
from . import sections
from .history import Entry, digest

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry

Part = Mapping[str, Any]
"""An NPU of a plan, or a plan."""
Step = Tuple[str, str]
"""``+``, ``~`` or ``-``, and what is new, changes or goes."""
REST = "only settings of the run"
"""The line of states that differ in nothing else."""
MANY = 5
"""More files than these of one folder are counted."""
_WORDS = {"+": "added", "~": "changed", "-": "removed"}
_SETS = (
    ("pool", "CPUs"),
    ("irq", "irq"),
    ("main", "main"),
    ("kv", "kv"),
    ("acl", "acl"),
    ("release", "release"),
    ("memory_nodes", "memory nodes"),
)
_OF_NPU = (*_SETS, ("id", "id"), ("slice", "slice"), ("state", "state"))
_OF_HOST = (("strategy", "strategy"), ("housekeeping", "housekeeping"), ("cpus", "CPUs"), ("poll", "poll threads"))
_SHOWN = {"about", "npus", "lost"} | {key for key, _word in _OF_HOST}


def difference(desired: AppliedState, in_force: AppliedState) -> list[str]:
    """Return a line for everything that applying a desired state would change of the state in force: the plan, features, and files.

    There is none exactly where the digests of the states are equal.
    """
    if digest(in_force) == digest(desired):
        return []
    lines = [_line(*step) for step in plan_steps(in_force["plan"] or {}, desired["plan"] or {})]
    before, after = (_features(state, in_force, desired) for state in (in_force, desired))
    lines += [switched(name, after[name]) for name in before if before[name] != after[name]]
    lines += _of_files(*({entry["path"]: entry for entry in state["files"]} for state in (in_force, desired)))
    now, then = in_force["live"], desired["live"]
    return lines or ["settings of feature %s: changed" % name for name, value in then.items() if value != now.get(name)] or [REST]


def switched(feature: str, presence: str) -> str:
    """Return the line of a feature that a host gets or loses, with what it does there."""
    effect = sections.EFFECTS.get(feature, "")
    return "feature %s: %s" % (feature, "on -> off" if presence == "absent" else "off -> on" + (" (%s)" % effect if effect else ""))


def _line(mark: str, text: str) -> str:
    name, _colon, rest = text.partition(": ")
    return "%s: %s, %s" % (name, _WORDS[mark], rest) if mark != "~" and rest else text


def _of_files(before: Mapping[str, FileEntry], after: Mapping[str, FileEntry]) -> Iterator[str]:
    folders: dict[tuple[str, str], list[str]] = {}
    for path in sorted(before.keys() | after.keys()):
        mark = "+" if path not in before else "-" if path not in after else "~"
        if before.get(path) != after.get(path):
            folders.setdefault((posixpath.dirname(path), mark), []).append(path)
    for (folder, mark), paths in folders.items():
        if len(paths) > MANY:
            yield "%s in %s: %s" % (count(len(paths), "file"), folder, _WORDS[mark])
        else:
            yield from ("file %s: %s" % (path, _WORDS[mark]) for path in paths)


def _features(state: AppliedState, *both: AppliedState) -> dict[str, str]:
    """Return the features of both states as one of them has them: one that nobody has applied is absent, like one that was removed."""
    return {name: state["features"].get(name, "absent") for one in both for name in one["features"]}


def plan_steps(now: Part, then: Part) -> list[Step]:
    """Return what differs between two plans, each of which can be empty: of the host, and of each NPU."""
    old, new = _npus(now), _npus(then)
    steps = _of_host(now, then)
    for key, entry in new.items():
        if key not in old:
            steps.append(("+", _all_of(entry)))
        else:
            steps += [("~", "%s: %s" % (_title(entry), parts)) for parts in [_changes(old[key], entry, _OF_NPU)] if parts]
    return steps + [("-", _all_of(entry)) for key, entry in old.items() if key not in new]


def other_parts(now: Part, then: Part) -> list[str]:
    """Return the keys of two plans that differ and have no line."""
    return sorted(key for key in set(now) | set(then) if key not in _SHOWN and (now.get(key) or None) != (then.get(key) or None))


def _npus(plan: Part) -> dict[tuple[str, object], Part]:
    """Return the NPUs of a plan by PCI function, if any, and chip, because ids close up."""
    return {
        (str(entry.get("pci") or entry.get("id")).lower(), entry.get("chip")): dict(entry, state=state)
        for key, state in (("npus", "found"), ("lost", "not found"))
        for entry in plan.get(key) or []
        if isinstance(entry, dict)
    }


def _of_host(now: Part, then: Part) -> list[Step]:
    if now and then:
        parts = _changes(now, then, _OF_HOST)
        return [("~", parts)] if parts else []
    parts = ", ".join("%s %s" % (word, plan[key]) for plan in (now, then) for key, word in _OF_HOST if plan.get(key))
    return [("+" if then else "-", parts)] if parts else []


def _changes(now: Part, then: Part, names: Sequence[tuple[str, str]]) -> str:
    pairs = [(word, _text(now.get(key)), _text(then.get(key))) for key, word in names]
    return ", ".join("%s %s -> %s" % (word, old, new) for word, old, new in pairs if old != new)


def _text(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def _title(entry: Part) -> str:
    kind, _dash, number = str(entry.get("slice") or "").partition("-")
    name = "%s %s" % (kind.upper(), number.partition(".")[0]) if number else "NPU %s" % entry.get("id")
    return "%s (%s)" % (name, entry.get("pci") or "without PCI function")


def _all_of(entry: Part) -> str:
    parts = ["%s %s" % (word, entry[key]) for key, word in _SETS if entry.get(key)]
    return _title(entry) + (": " + ", ".join(parts) if parts else "")


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a description of each entry of a history (oldest first), the newest first, each with its difference from the one before."""
    descriptions = []
    for place, entry in enumerate(entries):
        npus = (entry.state["plan"] or {}).get("npus", [])
        first = ["%s, %s" % (count(len(npus), noun(npus)), count(len(entry.state["files"]), "file"))]
        lines = difference(entry.state, entries[place - 1].state) or [REST] if place else first
        descriptions.append(dict(entry.header(), features=entry.state["features"], difference=lines))
    return descriptions[::-1]


def paragraphs(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the same as lines: when each entry was applied, in which run, by whom, and why, and what it changed."""
    for row in rows(entries):
        who, why = (" by %s" % row["author"] if row["author"] else ""), (": %s" % row["reason"] if row["reason"] else "")
        applied = (row["id"], row["time"], row["run"]["id"], row["action"], who, row["version"], why)
        yield "%d  %s  run %s: %s%s, npu.affinity %s%s" % applied
        yield from ("     " + line for line in row["difference"])
