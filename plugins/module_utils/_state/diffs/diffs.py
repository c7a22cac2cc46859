# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules tell of a report: diffs in few lines.

A line begins with ``+`` for what is new, ``~`` for what changes (now -> then) and ``-`` for what goes.
"""

from __future__ import annotations

import posixpath
from typing import Any, Iterable, Mapping, Sequence

from ..._host.installed import is_archive
from ..._base.table import count
from ..._base.cpulist import compress, expand
from ..._kernel.interrupts import KINDS
from ..plan_file import PATH as PLAN, parsed
from ..files import FileState, States
from ..systemd import UNIT_FOLDER

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


class Diff:
    """The diff of one module call: lines by the parts of :data:`TITLES`, and texts of files of others."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {title: [] for title in TITLES}
        self.texts: list[dict[str, str]] = []

    def add(self, title: str, lines: Iterable[str]) -> Diff:
        self.parts[title] += lines
        return self

    def add_lines(self, lines: Mapping[str, Iterable[str]]) -> Diff:
        """Add lines by their title."""
        for title, told in lines.items():
            self.add(title, told)
        return self

    def add_files(self, changes: Mapping[str, States], actions: Iterable[str] = (), restart_needed: Iterable[str] = ()) -> Diff:
        """Add ``{path: (before, after)}`` of file states, settings of systemd, and what only a restart changes."""
        if changes:
            self._add_changes(changes)
        self.add(SYSTEMD, _by_verb(actions))
        return self.add(RESTART, [unit for unit in restart_needed if unit not in self.parts[RESTART]])

    def _add_changes(self, changes: Mapping[str, States]) -> None:
        from ..history.difference import other_parts, plan_steps  # of no use where nothing changes
        from . import file_lines

        together = _removed_together(changes)
        for path, (before, after) in changes.items():
            if path == PLAN:
                now, then = parsed(before.text), parsed(after.text)
                lines = ["%s %s" % step for step in plan_steps(now, then)]
                others = other_parts(now, then)
                self.add(PLANS, lines or ["~ only %s" % " and ".join(others)] * bool(others))
            elif file_lines.is_told_in_lines(before, after):
                if not is_archive(path) and path not in together:
                    self.add(UNITS if path.startswith(UNIT_FOLDER + "/") else FILES, file_lines.lines(path, before, after))
            else:
                self.texts.append(of_text(path, before, after))
        self.add(FILES, file_lines.programs(changes))
        self.add(
            FILES, dict.fromkeys("- %s in %s" % (count(len(paths), "file"), posixpath.dirname(paths[0])) for paths in together.values())
        )

    def told(self) -> list[str]:
        """Return all lines, and the paths of the files that are shown as texts."""
        return [line for lines in self.parts.values() for line in lines] + [text["before_header"] for text in self.texts]

    def document(self) -> list[dict[str, str]]:
        """Return what a module returns as ``diff``; an empty list where nothing differs."""
        told = ["%s:\n%s" % (title, "".join("  %s\n" % line for line in lines)) for title, lines in self.parts.items() if lines]
        return ([{"prepared": "".join(told)}] if told else []) + self.texts


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


def _by_verb(actions: Iterable[str]) -> list[str]:
    """Return actions such as ``start npu.slice``, those with one verb in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for action in actions:
        verb, _blank, rest = action.partition(" ")
        groups.setdefault((verb, "") if rest and " " not in rest else (verb, rest), []).append(rest)
    return ["%s %s" % (verb, ", ".join(rests)) for (verb, _rest), rests in groups.items()]


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
    found = {str(entry[key]) for entry in entries}
    if len(found) == 1:
        return found.pop() or "off"
    try:
        return "spread over %s" % compress({cpu for cpus in found for cpu in expand(cpus)})
    except ValueError:
        return ", ".join(sorted(found))


def folders(modes: Mapping[str, tuple[int | None, int]]) -> list[str]:
    """Return a line for every directory of ``{path: (permission bits before or None, after)}``."""
    return [
        "+ %s/  mode %04o" % (path, after) if before is None else "~ %s/  mode %04o -> %04o" % (path, before, after)
        for path, (before, after) in modes.items()
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else " ".join("%s=%s" % pair for pair in value.items()) or "none"


def work(users: Iterable[Entry]) -> list[str]:
    """Return a line for every user of NPUs that gets other CPUs, memory nodes or variables (:meth:`adopt.target.Target.row`)."""
    kinds = (
        ("CPUs", "before", "after"),
        ("memory nodes", "mems_before", "mems_after"),
        ("variables at its next start", "variables_before", "variables_after"),
    )
    lines = []
    for row in users:
        moved = ["%s %s -> %s" % (word, _text(row[old]), _text(row[new])) for word, old, new in kinds if row.get(old) != row.get(new)]
        lines += ["~ %s (%s): %s" % (row["name"], " and ".join(row["npus"]), ", ".join(moved))] if moved else []
    return lines


def threads(processes: Iterable[Entry]) -> list[str]:
    """Return a line for every process of a report of :func:`threads.placing.place` of which a thread moves."""
    moved = [(row["title"], _moves(row["threads"], "threads")) for row in processes]
    return ["~ %s: %s" % (title, "; ".join(parts)) for title, parts in moved if parts]


def memory(migration: Any, check: bool) -> list[str]:
    """Return a line for every process of a :class:`threads.memory.Migration` with MiB on remote nodes, as predicted in check mode."""
    lines = []
    for process, _table, amount in migration.todo:
        moved = sum(step["mib"] - step["left_mib"] for step in migration.steps if step["pid"] == process.pid)
        lines.append("~ %s: MiB on remote nodes %.1f -> %.1f" % (process.title, amount, 0 if check else amount - moved))
    return lines


def add_unbind(diff: Diff, report: Any) -> Diff:
    """Add what a report of :mod:`_transaction.unbind` has."""
    diff.add_files(report.changes, report.actions, report.restart_needed)
    for part in report.releases.values():
        diff.add_lines(part.lines())
    return diff
