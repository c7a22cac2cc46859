# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopted work, given back the CPUs and memory nodes that it had.

What has ended needs nothing. What somebody else has given other CPUs since is reported, and keeps them.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Sequence

from ..._base.cpulist import expand
from ..._state.diffs import diffs
from ..._host.host import CommandError
from ..._kernel.masks import cpuset
from ..._state import release
from ..._state.files import FileState
from ..._users.finding import members_of
from . import services, tasks
from .children import Child, children_of, strangers
from .engines import Engines, are_all
from .places import SECTION
from .record import Record, all_given, identity

_OTHERS = "%s was given other %s than %s by someone else since it was adopted, and keeps them"


_WORDS = {"cpus": "CPUs", "mems": "memory nodes"}


class GivenBack:
    """What gets its CPUs back: rows of name, CPUs before and after, and memory nodes before; '' stands for all that there are."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    @property
    def changed(self) -> bool:
        return bool(self.rows)


class Release(release.Release):
    """``report`` is a :class:`GivenBack`, or None where nothing was adopted."""

    report: GivenBack | None = None

    def __init__(self, *arguments: Any) -> None:
        release.Release.__init__(self, *arguments)
        self.services: dict[str, Mapping[str, Any]] = {}
        self.left: dict[str, Mapping[str, Any]] = {}
        self.containers: list[tuple[str, Mapping[str, Any], dict[str, str]]] = []
        self.processes: list[tuple[int, Mapping[str, Any], list[str]]] = []
        self.children: dict[int, Child] = {}
        self.engines = Engines(self.host)
        self.again: list[Callable[[], None]] = []

    def look(self) -> None:
        self.report = None
        self.services, self.left, self.containers, self.processes, self.children = {}, {}, [], [], {}
        if SECTION not in self.outcome.recorded:
            return
        self.report, record = GivenBack(), self._given_back()
        attempt = self.outcome.attempt
        for unit, entry in record.services.items():
            attempt(SECTION, self._look_at_service, unit, entry)
        self.engines.expect((entry["engine"], container) for container, entry in record.containers.items())
        for container, entry in record.containers.items():
            attempt(SECTION, self._look_at_container, container, entry)
        for pid, entry in record.processes.items():
            attempt(SECTION, self._look_at_process, int(pid), entry, record)
        self.children = attempt(SECTION, children_of, self.host, record, self.services) or {}
        self.outcome.warnings += [text for text in strangers(self.host, record, self.children) if text not in self.outcome.warnings]

    def _given_back(self) -> Record:
        """Return the record of what gets its CPUs back."""
        return Record(self.host)

    def _add(self, name: str, before: str, after: str, mems: str = "") -> None:
        if self.report is not None:
            self.report.rows.append((name, before, after, mems))

    def _warn(self, name: str, cpus: str, what: str = "CPUs") -> None:
        sentence = _OTHERS % (name, what, cpus)
        if sentence not in self.outcome.warnings:
            self.outcome.warnings.append(sentence)

    def _look_at_service(self, unit: str, entry: Mapping[str, Any]) -> None:
        given = all_given(entry)
        if services.said(self.host, unit) is None and not services.is_live(self.host, unit, given):
            return
        if services.is_as_written(self.host, unit, given):
            self.services[unit] = entry
            self._add(unit, entry["cpus"], "", entry.get("mems", ""))
        else:
            self.left[unit] = entry
            self._warn(unit, " and ".join(given[0].values()), " and ".join(_WORDS[kind] for kind in given[0]))

    def _look_at_container(self, container: str, entry: Mapping[str, Any]) -> None:
        found = self.engines.sets_of(entry["engine"], container, entry["group"])
        kinds = {}
        for kind in _WORDS if found else ():
            written = [one[kind] for one in all_given(entry) if kind in one]
            now, before = (found or {})[kind], entry["before"] if kind == "cpus" else ""
            is_as_before = now == before or (not before and are_all(self.host, kind, now))
            if now in written or (is_as_before and self._is_confined(entry, kind, written)):
                kinds[kind] = now if now in written else written[0]
            elif written and not is_as_before:
                self._warn(entry["name"], written[0], _WORDS[kind])
        if kinds:
            self.containers.append((container, entry, kinds))
            self._add(entry["name"], kinds.get("cpus", entry["cpus"]), entry["before"], kinds.get("mems", ""))

    def _is_confined(self, entry: Mapping[str, Any], kind: str, written: Sequence[str]) -> bool:
        """Whether a container has what it was given although its engine says otherwise: Podman 4 does not write updates down."""
        sets = [set(expand(text)) for text in written]
        return any(cpuset(self.host, pid, kind) in sets for pid in members_of(self.host, entry["group"]))

    def _look_at_process(self, pid: int, entry: Mapping[str, Any], record: Record) -> None:
        if not record.lives(str(pid)):
            return
        cpus, recorded = set(expand(entry["cpus"])), entry["threads"]
        given = [set(expand(one["cpus"])) for one in all_given(entry) if one]
        now, asked = tasks.masks(self.host, pid), tasks.asked_for(self.host, pid)
        if not now:
            raise ValueError("the CPUs of process %d of %s cannot be read" % (pid, entry["title"]))
        moved = [name for name in now if asked.get(name) != recorded.get(name)]
        left = [name for name in moved if cpus and not any(set(expand(now[name])) <= one for one in given)]
        if left:
            which = "" if left == moved else "%s %s of " % ("thread" if len(left) == 1 else "threads", ", ".join(left))
            self._warn("%sprocess %d of %s" % (which, pid, entry["title"]), entry["cpus"])
        if len(left) < len(moved) or not cpus:
            self.processes.append((pid, entry, left))
            if cpus:
                self._add("process %d of %s" % (pid, entry["title"]), entry["cpus"], recorded.get(str(pid), ""))

    def release(self) -> None:
        """Give back what :meth:`look` found, groups before the threads in them."""
        attempt = self.outcome.attempt
        now = {pid: tasks.asked_for(self.host, pid) for pid, _entry, _left in self.processes}
        for container, entry, kinds in reversed(self.containers):
            attempt(SECTION, self._release_container, container, entry, kinds)
        for unit, left in self.left.items():
            attempt(SECTION, services.forget, self.host, unit, left)
        if self.services:
            attempt(SECTION, self._release_services)
        for pid, child in self.children.items():
            attempt(SECTION, self._release_child, pid, child)
        for pid, entry, left in reversed(self.processes):
            attempt(SECTION, self._release_process, pid, entry, left, now[pid])

    def _release_container(self, container: str, entry: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        before = {"cpus": entry["before"], "mems": ""}
        self.again.append(lambda: self.engines.update(entry["engine"], container, kinds))
        self.engines.update(entry["engine"], container, {kind: before[kind] for kind in kinds})

    def _release_services(self) -> None:
        for unit, made in self.services.items():
            before = FileState.of(self.host, services.drop_in(unit))
            self.again.append(functools.partial(services.put_back, self.host, unit, before, made))
        services.take_away(self.host, self.services)

    def _release_child(self, pid: int, child: Child) -> None:
        if identity(self.host, pid) != child.started:
            return
        self.again.append(lambda: tasks.restore(self.host, pid, child.threads))
        tasks.restore(self.host, pid, dict.fromkeys(child.threads, child.before))

    def _release_process(self, pid: int, entry: Mapping[str, Any], left: Sequence[str], now: tasks.Masks) -> None:
        if identity(self.host, pid) != (entry["start"], entry["boot"]):
            return
        self.again.append(lambda: tasks.restore(self.host, pid, now))
        tasks.restore(self.host, pid, dict(entry["threads"], **dict.fromkeys(left, "")), entry["threads"].get(str(pid)))

    def lines(self) -> dict[str, list[str]]:
        rows = self.report.rows if self.report else []
        texts = [(row[:2] + (row[2] or "all",), ", memory nodes %s -> all" % row[3] if row[3] else "") for row in rows]
        return {diffs.WORK: ["~ %s: CPUs %s -> %s" % row + text for row, text in texts]}

    def take_back(self) -> None:
        failed = []
        for step in self.again:
            try:
                step()
            except (CommandError, OSError, ValueError) as error:
                failed.append(str(error))
        if failed:
            raise ValueError("running work could not all be adopted again: " + "; ".join(failed))
