# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopted work, given back the CPUs and memory nodes that it had.

What has ended needs nothing. What somebody else has given other CPUs since is reported, and keeps them.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._state.diffs import diffs
from ..._host.host import CommandError
from ..._kernel.masks import cpuset, possible
from ..._state import release
from ..._state.files import FileState
from ..._state.systemd import Systemd
from ..._users.finding import members_of
from . import engines, services, tasks
from .places import SECTION
from .record import Record, identity

_OTHERS = "%s was given other %s than %s by someone else since it was adopted, and keeps them"


_WORDS = {"cpus": "CPUs", "mems": "memory nodes"}


def _sets(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the sets that were written, of an entry of the record."""
    return {kind: entry[kind] for kind in _WORDS if entry.get(kind)}


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
        self.services: dict[str, list[str]] = {}
        self.left: dict[str, list[str]] = {}
        self.containers: list[tuple[str, Mapping[str, Any], list[str]]] = []
        self.processes: list[tuple[int, Mapping[str, Any], list[str]]] = []
        self.started: dict[int, tasks.Masks] = {}
        self.again: list[Callable[[], None]] = []

    def look(self) -> None:
        self.report = None
        self.services, self.left, self.containers, self.processes, self.started = {}, {}, [], [], {}
        if SECTION not in self.outcome.recorded:
            return
        self.report, record = GivenBack(), self._given_back()
        for unit, entry in record.services.items():
            self._look_at_service(unit, entry)
            self._look_at_started(unit, entry["cpus"], record)
        for container, entry in record.containers.items():
            self.outcome.attempt(SECTION, self._look_at_container, container, entry)
        for pid, entry in record.processes.items():
            if record.lives(pid):
                self._look_at_process(int(pid), entry)

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
        if services.said(self.host, unit) is None and not services.is_live(self.host, unit, entry["cpus"]):
            return
        sets = _sets(entry)
        if services.is_as_written(self.host, unit, sets):
            self.services[unit] = entry["folders"]
            self._add(unit, entry["cpus"], "", entry.get("mems", ""))
        else:
            self.left[unit] = entry["folders"]
            self._warn(unit, " and ".join(sets.values()), " and ".join(_WORDS[kind] for kind in sets))

    def _look_at_started(self, unit: str, cpus: str, record: Record) -> None:
        """Find what was started on the CPUs of a drop-in where no cpuset widens it: on cgroup v1."""
        if not self.host.live or services.has_cpusets(self.host) or unit not in self.services:
            return
        group = Systemd(self.host).show(["ControlGroup"], [unit]).get(unit, {}).get("ControlGroup")
        for pid in members_of(self.host, group) if group else ():
            known = str(pid) in record.processes and record.lives(str(pid))
            same = {name: text for name, text in tasks.masks(self.host, pid).items() if set(expand(text)) == set(expand(cpus))}
            if same and not known:
                self.started[pid] = same

    def _look_at_container(self, container: str, entry: Mapping[str, Any]) -> None:
        found = engines.sets_of(self.host, entry["engine"], container)
        kinds = []
        for kind, written in _sets(entry).items() if found else ():
            now, before = (found or {})[kind], entry["before"] if kind == "cpus" else ""
            is_as_before = now == before or (not before and engines.are_all(self.host, kind, now))
            if now == written or (is_as_before and self._is_confined(entry, kind)):
                kinds.append(kind)
            elif not is_as_before:
                self._warn(entry["name"], written, _WORDS[kind])
        if kinds:
            self.containers.append((container, entry, kinds))
            self._add(entry["name"], entry["cpus"], entry["before"], entry["mems"] if "mems" in kinds else "")

    def _is_confined(self, entry: Mapping[str, Any], kind: str) -> bool:
        """Whether a container has what it was given although its engine says otherwise: Podman 4 does not write updates down."""
        pids = members_of(self.host, entry["group"]) if entry.get("group") else []
        return any(cpuset(self.host, pid, kind) == set(expand(entry[kind])) for pid in pids)

    def _look_at_process(self, pid: int, entry: Mapping[str, Any]) -> None:
        cpus, recorded = set(expand(entry["cpus"])), entry["threads"]
        now, asked = tasks.masks(self.host, pid), tasks.asked_for(self.host, pid)
        moved = [name for name in now if asked.get(name) != recorded.get(name)]
        left = [name for name in moved if cpus and not set(expand(now[name])) <= cpus]
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
        for unit, folders in self.left.items():
            attempt(SECTION, services.forget, self.host, unit, folders)
        if self.services:
            attempt(SECTION, self._release_services)
        for pid, threads in self.started.items():
            attempt(SECTION, self._release_started, pid, threads)
        for pid, entry, left in reversed(self.processes):
            attempt(SECTION, self._release_process, pid, entry, left, now[pid])

    def _release_container(self, container: str, entry: Mapping[str, Any], kinds: Sequence[str]) -> None:
        before = {"cpus": entry["before"], "mems": ""}
        engines.update(self.host, entry["engine"], container, {kind: before[kind] for kind in kinds})
        self.again.append(lambda: engines.update(self.host, entry["engine"], container, {kind: entry[kind] for kind in kinds}))

    def _release_services(self) -> None:
        for unit, made in self.services.items():
            before = FileState.of(self.host, services.drop_in(unit))
            self.again.append(functools.partial(services.put_back, self.host, unit, before, made))
        services.take_away(self.host, self.services)

    def _release_started(self, pid: int, threads: tasks.Masks) -> None:
        self.again.append(lambda: tasks.restore(self.host, pid, threads))
        tasks.restore(self.host, pid, dict.fromkeys(threads, compress(possible(self.host))))

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
