# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules tell of a report: diffs in few lines.

A line begins with ``+`` for what is new, ``~`` for what changes (now -> then) and ``-`` for what goes. A program or a JSON document is
never shown as text: what it holds is on the host, or is the version of the collection.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import Any, Iterable, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._base.outside import json_of
from .._base.table import count
from .._host.installed import installed_version, is_archive
from .._kernel.interrupts import KINDS
from .files import FileState, States, is_managed
from .plan_file import PATH as PLAN, parsed
from .systemd import UNIT_FOLDER

Entry = Mapping[str, Any]
"""Plain data of a report."""
PLANS, UNITS, FILES, SETTINGS, INTERRUPTS, SHARE, WORK, THREADS, MEMORY, KUBELET, SYSTEMD, RESTART = TITLES = (
    "plan",
    "units in %s" % UNIT_FOLDER,
    "other files",
    "host settings",
    "interrupts",
    "device share",
    "running work",
    "threads",
    "memory",
    "kubelet",
    "systemd",
    "wait for a restart",
)
"""The parts of a diff, in their order."""
MANY = 5
"""More names of interrupts, workqueues or threads than these are counted."""

_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9_]*[=+]?)=(.*)")
"""A setting, or a match or an assignment of a udev rule."""
_NEXT_OF_RULE = re.compile(r'(?<="), (?=[A-Z]+[=+]?=")')
_ROUTINE = {"Description", "Documentation", "After", "Before", "Type", "ConditionPathExists", "TimeoutStartSec", "AccuracySec"}
"""What a new unit is not told by; a change of it is shown."""
_GAP = "  "
_LONG = 60
"""So many characters of a value of a JSON document are shown."""


class Diff:
    """The diff of one module call: lines by the parts of :data:`TITLES`, and texts of files of others."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {title: [] for title in TITLES}
        self.texts: list[dict[str, str]] = []

    def add_lines(self, lines: Mapping[str, Iterable[str]]) -> None:
        """Add lines by their title."""
        for title, part in lines.items():
            self.parts[title] += part

    def add_files(self, changes: Mapping[str, States], actions: Iterable[str] = (), restart_needed: Iterable[str] = ()) -> Diff:
        """Add ``{path: (before, after)}`` of file states, settings of systemd, and what only a restart changes."""
        if changes:
            self._add_changes(changes)
        groups: dict[tuple[str, str], list[str]] = {}
        for action in actions:
            verb, _blank, rest = action.partition(" ")
            groups.setdefault((verb, "") if rest and " " not in rest else (verb, rest), []).append(rest)
        self.parts[SYSTEMD] += ["%s %s" % (verb, ", ".join(rests)) for (verb, _rest), rests in groups.items()]
        self.parts[RESTART] += [unit for unit in restart_needed if unit not in self.parts[RESTART]]
        return self

    def add_unbind(self, report: Any) -> Diff:
        """Add what a report of :mod:`_transaction.unbind` has."""
        self.add_files(report.changes, report.actions, report.restart_needed)
        for part in report.restored.values():
            self.add_lines(part.lines())
        return self

    def _add_changes(self, changes: Mapping[str, States]) -> None:
        from .difference import other_parts, plan_steps  # of no use where nothing changes

        together = _removed_together(changes)
        for path, (before, after) in changes.items():
            if path == PLAN:
                now, then = parsed(before.text), parsed(after.text)
                lines = ["%s %s" % step for step in plan_steps(now, then)]
                others = other_parts(now, then)
                self.parts[PLANS] += lines or ["~ only %s" % " and ".join(others)] * bool(others)
            elif is_shown_in_lines(before, after):
                if not is_archive(path) and path not in together:
                    self.parts[UNITS if path.startswith(UNIT_FOLDER + "/") else FILES] += lines_of_file(path, before, after)
            else:
                self.texts.append(of_text(path, before, after))
        self.parts[FILES] += programs(changes)
        removed = ["- %s in %s" % (count(len(paths), "file"), posixpath.dirname(paths[0])) for paths in together.values()]
        self.parts[FILES] += dict.fromkeys(removed)

    def lines(self) -> list[str]:
        """Return all lines, and the paths of the files that are shown as texts."""
        return [line for lines in self.parts.values() for line in lines] + [text["before_header"] for text in self.texts]

    def document(self) -> list[dict[str, str]]:
        """Return what a module returns as ``diff``; an empty list where nothing differs."""
        sections = ["%s:\n%s" % (title, "".join("  %s\n" % line for line in lines)) for title, lines in self.parts.items() if lines]
        return ([{"prepared": "".join(sections)}] if sections else []) + self.texts


def _removed_together(changes: Mapping[str, States]) -> dict[str, list[str]]:
    """Return the paths that are shown with many others of their folder, each with all of these; not units, whose names matter."""
    folders: dict[str, list[str]] = {}
    for path, (_before, after) in changes.items():
        if after.text is None and path != PLAN and not is_archive(path) and not path.startswith(UNIT_FOLDER + "/"):
            folders.setdefault(posixpath.dirname(path), []).append(path)
    return {path: paths for paths in folders.values() if len(paths) > MANY for path in paths}


def of_text(path: str, before: FileState, after: FileState) -> dict[str, str]:
    """Return the diff of the text of a file.

    Text that is not world-readable on the host is replaced by a note, and does not reach the controller's log.
    """
    return {
        "before_header": path if before.text is not None else path + " (absent)",
        "after_header": path if after.text is not None else path + " (absent)",
        "before": _shown(before, before.private or after.private),
        "after": _shown(after, before.private or after.private),
    }


def _shown(state: FileState, private: bool) -> str:
    if private and state.text is not None:
        return "(not shown; mode %s)\n" % ("of a link" if state.mode is None else state.octal)
    return (state.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def programs(changes: Mapping[str, States]) -> list[str]:
    """Return the lines of the host code among ``{path: (before, after)}`` of file states; none where it stays as it is."""
    lines = []
    for path, (before, after) in changes.items():
        if is_archive(path):
            now, then = (_version(state.text) for state in (before, after))
            mark = "-" if after.text is None else "+" if before.text is None else "~"
            lines.append("%s %s: %s -> %s" % (mark, path, "other content" if now == then else now, then))
    return lines


def _version(text: str | None) -> str:
    return "none" if text is None else "version %s" % (installed_version(text) or "unknown")


def is_shown_in_lines(before: FileState, after: FileState) -> bool:
    """Whether :func:`lines_of_file` describes a change: of a managed file, a link, or a removal. Text of other files is shown unchanged."""
    texts = [state.text for state in (before, after) if state.text is not None and state.link is None]
    return after.text is None or all(map(is_managed, texts))


def lines_of_file(path: str, before: FileState, after: FileState) -> list[str]:
    """Return the line of a file that changes. For a managed file without settings, such as a script, its lines that differ follow."""
    name = posixpath.relpath(path, UNIT_FOLDER) if path.startswith(UNIT_FOLDER + "/") else path
    if after.text is None:
        return ["- " + name]
    if before.text is None:
        return ["+ " + _GAP.join([name] + _contents(after))]
    if before.link is not None or after.link is not None:
        return ["~ %s%s%s -> %s" % (name, _GAP, _kind(before), _kind(after))]
    parts, further = _differences(before, after)
    return ["~ " + _GAP.join([name] + parts)] + ["    " + line for line in further]


def _kind(state: FileState) -> str:
    return "a file" if state.link is None else "symbolic link to " + state.link


def _contents(state: FileState) -> list[str]:
    if state.link is not None:
        return [_kind(state)]
    if state.private:
        return ["(not shown; mode %s)" % state.octal]
    text = state.text or ""
    settings = _settings(text)
    if settings is None:
        return ["%d lines" % len(text.splitlines())]
    return ["%s=%s" % (key, value) for key, values in settings.items() if key not in _ROUTINE for value in values]


def _differences(before: FileState, after: FileState) -> tuple[list[str], list[str]]:
    """Return what differs in two texts of one file: parts of its line, and further lines."""
    mode = ["mode %s -> %s" % (before.octal, after.octal)] if before.mode != after.mode else []
    if before.private or after.private:
        return ["(not shown)"] + mode, []
    texts = before.text or "", after.text or ""
    old, new = map(_settings, texts)
    if old is None or new is None:
        import difflib

        lines = difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), n=0, lineterm="")
        return mode, [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    parts = [part for key in list(dict.fromkeys(list(old) + list(new))) for part in _change(key, old.get(key, []), new.get(key, []))]
    return (parts + mode or ["comments"]), []


def _change(key: str, old: list[str], new: list[str]) -> list[str]:
    if old == new:
        return []
    name = key.rstrip("=+")
    if key.endswith("="):
        old, new = ([one for value in values for one in value.strip('"').split("|")] for values in (old, new))
    if len(old) > 1 or len(new) > 1:
        gone, added = [value for value in old if value not in new], [value for value in new if value not in old]
        parts = ["%s -%s" % (name, value) for value in gone] + ["%s +%s" % (name, value) for value in added]
        return parts or ["%s in another order" % name]
    now, then = ("".join(values) or "none" for values in (old, new))
    return ["%s %s -> %s" % (name, now, then)]


def _settings(text: str) -> dict[str, list[str]] | None:
    """Return ``{key: [value, ...]}`` of a file of settings or a JSON document, without empty values that reset lists; else None."""
    if text.startswith("{"):
        try:
            return {key: [_shortened(value)] for key, value in json_of(text).items() if key != "about"}
        except ValueError:
            return None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";", "["))]
    settings: dict[str, list[str]] = {}
    for match in map(_SETTING.fullmatch, [part for line in lines for part in _NEXT_OF_RULE.split(line)]):
        if match is None:
            return None
        settings.setdefault(match.group(1), []).append(match.group(2))
    return {key: [value for value in values if value] or [""] for key, values in settings.items()}


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONG else text[: _LONG - 2] + " …"


def affinities(npus: Iterable[Entry]) -> list[str]:
    """Return a line for every NPU, or PCI function, of a report that something of moves: interrupts, workqueues and threads by name."""
    return [
        "~ %s: %s" % (npu["pci"] if npu["id"] is None else "NPU %s %s" % (npu["id"], npu["pci"]), "; ".join(moved))
        for npu in npus
        for moved in [[part for kind in KINDS for part in _moves(npu[kind], kind)]]
        if moved
    ]


def _moves(entries: Iterable[Entry], kind: str) -> list[str]:
    """Return what moves of one kind, by name, as ``16 cq_update_irq 144-167 -> 145``; of many names by the CPUs that they get."""
    moved = [entry for entry in entries if entry["before"] != entry["after"]]
    groups = _grouped(moved, "name" if len({entry["name"] for entry in moved}) <= MANY else "after")
    return ["%s %s -> %s" % (_title(same, kind), _place(same, "before"), _place(same, "after")) for same in groups]


def _grouped(entries: Iterable[Entry], key: str) -> list[list[Entry]]:
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry[key], []).append(entry)
    return list(groups.values())


def _title(entries: Sequence[Entry], kind: str) -> str:
    title: str = entries[0]["name"] if len({entry["name"] for entry in entries}) == 1 else kind
    return "%d %s" % (len(entries), title) if len(entries) > 1 else title


def _place(entries: Iterable[Entry], key: str) -> str:
    """Return the CPUs of entries; of those that differ all together, and that they do. RPS and XPS without CPUs are off."""
    places = {str(entry[key]) for entry in entries}
    if len(places) == 1:
        return places.pop() or "off"
    try:
        return "spread over %s" % compress({cpu for cpus in places for cpu in expand(cpus)})
    except ValueError:
        return ", ".join(sorted(places))


def threads(processes: Iterable[Entry]) -> list[str]:
    """Return a line for every process of a report of :func:`threads.placing.place` of which a thread moves."""
    moved = [(row["title"], _moves(row["threads"], "threads")) for row in processes]
    return ["~ %s: %s" % (title, "; ".join(parts)) for title, parts in moved if parts]
