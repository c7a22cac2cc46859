# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a set of host files and the systemd units that they configure to the wanted state, wholly or not at all.

Order: compare, refuse what is unsafe, start what a killed run had stopped, take the steps that come before (:mod:`.step`: what is switched
off), record what was there before the first bind, set what concerns the whole host, widen live CPU sets whose setting goes, write, try the
programs of our units, reload, stop slices that are gone and idle, enable, start, give running units what the reload did not, read back what
the kernel grants, take the steps that come after, add to the history. When a step fails, every file and setting is put back, what was
stopped is started, systemd is told again, and previous.json is as it was. Before the first write the paths are noted in previous.json, and
forgotten when systemd has followed: what a killed run began the next one finishes.
"""

from __future__ import annotations

import fnmatch
import posixpath
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Tuple

from .._cpulist import compress, expand
from .._history import entries
from .._history.entries import Applied
from .._host import CommandError, Host
from .._kernel import memory as _memory
from .._installed import former_bytecode, former_folders
from .._features.irq import irqbalance
from .._state import journal
from .._state import previous as _previous
from .._state.files import FileState, States, is_file, is_ours, leftovers, missing_folders, remove_empty, remove_file
from .._state.systemd import CPUSET_KEYS, UNIT_FOLDER, Systemd, enable_links, settings, slice_path, unit_of, units_of
from . import live_sets, programs
from .._state.step import Step

INTERRUPTED = "interrupted"
"""The section of previous.json with the paths that a run writes or removes at the moment; one that was killed left it there."""


class Request:
    """What a host should have. All paths are absolute paths of the machine.

    ``files``: list of ``{path, content, mode}`` or ``{path, link}``; ``owned``: shell patterns of paths where a file of ours that is not in
    ``files`` is removed; ``enabled``, ``started``, ``stopped``: unit names; ``released``: units that go back to what they were where an
    earlier run stopped them; ``restarted``: list of ``{unit, files}``, a unit restarted when one of those files changed; ``expected``: list
    of ``{unit, cpus, mems}``, cpulists that the kernel must grant ('' = not checked); ``move_memory``: whether memory nodes of a unit with
    processes may change, where its memory fits; ``tolerant``: whether a unit that cannot be restarted is left for the next run, instead of
    failing this one; ``applied``: what goes into the history when something changed, None for what is no state of the host.
    """

    def __init__(
        self,
        files: Iterable[Mapping[str, Any]] = (),
        owned: Sequence[str] = (),
        enabled: Sequence[str] = (),
        started: Sequence[str] = (),
        stopped: Sequence[str] = (),
        released: Sequence[str] = (),
        restarted: Sequence[Mapping[str, Any]] = (),
        expected: Sequence[Mapping[str, Any]] = (),
        move_memory: bool = False,
        tolerant: bool = False,
        applied: Applied | None = None,
    ) -> None:
        self.files = {entry["path"]: FileState.from_record(entry) for entry in files}
        self.owned = owned
        self.enabled = enabled
        self.started = started
        self.stopped = stopped
        self.released = released
        self.restarted = restarted
        self.expected = expected
        self.move_memory = move_memory
        self.tolerant = tolerant
        self.applied = applied

    def concerns(self, path: str) -> bool:
        return path in self.files or any(fnmatch.fnmatchcase(path, pattern) for pattern in self.owned)


class Report:
    """What was (or in check mode would be) done; ``changes`` maps a path to its :class:`FileState` before and after.

    ``restart_needed``: running units that follow only at their next start;
    ``slices_left``: slices without a file that live on because of them. Sentences: ``unfinished`` on what the next run tries again (units
    that the kernel still confines, or that do not restart), ``not_started`` on units that an earlier run had stopped, ``untried`` on
    programs of units that only another machine can run, and ``warnings``. ``history``: the id of the entry that the run made, or None;
    ``failed_units``: units of ours whose last run failed, which :func:`_transaction.programs.run_again` starts when the lock is released.
    """

    def __init__(self) -> None:
        self.changes: dict[str, States] = {}
        self.actions: list[str] = []
        self.restart_needed: list[str] = []
        self.slices_left: list[str] = []
        self.unfinished: list[str] = []
        self.not_started: list[str] = []
        self.untried: list[str] = []
        self.warnings: list[str] = []
        self.history: int | None = None
        self.failed_units: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.changes or self.actions)


def _stale(host: Host, request: Request) -> Iterator[str]:
    """Yield the paths of our own files that the request no longer has, and of temporary files that a killed run left beside them."""
    for folder in sorted({posixpath.dirname(path) for path in request.files}):
        yield from leftovers(host, folder)
    for path in owned(host, request.owned):
        text = FileState.of(host, path).text if path not in request.files and is_file(host, path) else None
        if text is not None and is_ours(text):
            yield path


def owned(host: Host, patterns: Iterable[str]) -> Iterator[str]:
    """Yield the paths of everything that is where files of the collection lie, by their shell patterns."""
    for pattern in patterns:
        folder, name = posixpath.split(pattern)
        parent, inner = posixpath.split(folder)
        folders = ["%s/%s" % (parent, found) for found in host.names(parent, inner)] if "*" in inner else [folder]
        for candidate in folders:
            for found in host.names(candidate, name):
                yield "%s/%s" % (candidate, found)


def compare(host: Host, request: Request) -> dict[str, States]:
    """Return ``{path: (before, after)}`` of the files that differ, those to be written in the given order, those to be removed last."""
    changes = {}
    for path, after in request.files.items():
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError("file path '%s' must be absolute and without '..'" % path)
        if (unit_of(path) or "").startswith("kubepods"):
            raise ValueError("%s is refused: nothing may be set on kubepods, its CPU sets belong to the kubelet" % path)
        before = FileState.of(host, path)
        if before != after:
            changes[path] = (before, after)
    for path in _stale(host, request):
        changes[path] = (FileState.of(host, path), FileState(None, None))
    return changes


def _refuse_moving_memory(host: Host, systemd: Systemd, changes: Mapping[str, States], wanted: bool) -> None:
    """Raise ``ValueError`` where running units would lose memory nodes, unless that is ``wanted`` and the others have room for it."""
    everything = set(expand(host.read("/sys/devices/system/node/has_memory") or ""))
    coming: list[tuple[str, set[int], int]] = []
    for path, (before, after) in changes.items():
        unit = unit_of(path)
        nodes = [settings(state.text).get("AllowedMemoryNodes", "") for state in (before, after)]
        old, new = (set(expand(value)) or everything for value in nodes)
        folder = systemd.cgroup(unit) if unit and not old <= new and systemd.populated(unit) else None
        if folder is None:
            continue
        used, room = _memory.used_by_node(host, folder), _memory.room_of_nodes(host)
        moved = _memory.outside(used or {}, new)
        others = [amount for other, taken, amount in coming if taken & new and not _nested(folder, other)]
        left = sum(room.get(node, 0) for node in new) - sum(others)
        coming.append((folder, new, moved))
        change = "%s has running processes: changing its memory nodes from %s to %s would move" % (unit, nodes[0] or "all", nodes[1])
        if used and room and moved > left:
            raise ValueError(
                "%s %s, and memory nodes %s have room for %s: the kernel would kill processes of it. Stop what runs in it first, or allow "
                "it more nodes with npu_affinity_memory (wide, or none)" % (change, _memory.gib(moved), nodes[1], _memory.gib(max(0, left)))
            )
        if not wanted:
            amount = " (%s)" % _memory.gib(moved) if used else ""
            raise ValueError(
                "%s their pages%s, at hundreds of MB/s. Stop what runs in it first, or set npu_affinity_move_memory: true"
                % (change, amount)
            )


def _nested(folder: str, other: str) -> bool:
    """Whether one of two control groups is in the other: its memory counts there, too."""
    return (folder + "/").startswith(other + "/") or other.startswith(folder + "/")


def _record(host: Host, changes: Mapping[str, States], links: list[str]) -> None:
    """Record files of others that are overwritten, links that enable them, and folders that our files and links of our units need."""
    others = {path: before for path, (before, after) in changes.items() if before.text is not None and not is_ours(before.text)}
    enabling = [link for unit in units_of(others) for link in Systemd(host).links(unit)]
    _record_files(host, dict(others, **{link: FileState.of(host, link) for link in enabling}))
    ours = [path for path, (before, after) in changes.items() if after.text is not None and is_ours(after.text)]
    folders = [folder for folder in missing_folders(host, ours + links) if folder != posixpath.dirname(_previous.PATH)]
    if folders:
        _previous.record(host, "folders", folders)


def _record_files(host: Host, states: Mapping[str, FileState]) -> None:
    known = _previous.recorded(host).get("files", {})
    files = {path: state.record() for path, state in states.items() if path not in known}
    if files:
        _previous.record(host, "files", files)


def _outermost_first(units: Iterable[str]) -> list[str]:
    """Sort units for widening: what is inside a narrow one does not look narrow."""
    return sorted(units, key=lambda unit: slice_path(unit) if unit.endswith(".slice") else "~")


def _lost_settings(before: FileState, after: FileState) -> set[str]:
    return {key for key in CPUSET_KEYS if key in settings(before.text) and key not in settings(after.text)}


def _is_live(before: FileState, after: FileState) -> bool:
    """Whether a file has nothing but CPU sets, which running units follow."""
    return {*settings(before.text), *settings(after.text)} <= set(CPUSET_KEYS)


class TakenBack(ValueError):
    """A step failed, and the host is as it was before the transaction; or the text says what could not be put back."""


class Transaction:
    """The changes of one request on one host. ``look`` completes ``report`` without a write, ``run`` changes the host, ``finish`` forgets
    that a run is under way, and ``undo`` puts everything back in the reverse order, also after ``finish``."""

    def __init__(self, host: Host, request: Request) -> None:
        self.host = host
        self.request = request
        self.report = report = Report()
        self.systemd = Systemd(host)
        self.begun = False
        self.written: list[str] = []
        self.disabled: list[tuple[str, str | None]] = []
        self.enabled: list[tuple[str, str | None]] = []
        self.started: list[str] = []
        self.given_back: list[tuple[str, Standing]] = []
        self.stopped: list[tuple[str, dict[str, Any]]] = []
        self.slices: list[str] = []
        self.timers: list[str] = []
        self.to_widen: dict[str, set[str]] = {}
        self.to_restart: list[str] = []
        self.restarted: list[str] = []
        self.idle: list[str] = []
        begun = _previous.recorded(host).get(INTERRUPTED, []) if host.live else []
        self.interrupted = [path for path in begun if request.concerns(path)]
        stopped = _previous.recorded(host) if request.released else {}
        masked = [unit for unit in request.released if unit in stopped and self.systemd.masked(unit)]
        report.warnings += ["%s was stopped by an earlier bind and has been masked since: it stays stopped" % unit for unit in masked]
        self.released = {unit: stopped[unit] for unit in request.released if unit in stopped and unit not in masked}

    def look(self) -> None:
        """Complete the report. Raises ``ValueError`` where the request is unsafe."""
        report, request = self.report, self.request
        report.changes = compare(self.host, request)
        programs.refuse_missing(self.host, request.files)
        if self.host.live:
            _refuse_moving_memory(self.host, self.systemd, report.changes, request.move_memory)
        report.actions += ["start %s again" % unit for unit in journal.stopped(self.host)]
        report.actions += ["enable %s" % unit for unit in self.to_enable()]
        report.actions += ["stop %s" % unit for unit in request.stopped if runs_or_would(self.host, self.systemd, unit)]
        report.actions += ["put %s back to what it was" % unit for unit in self.released]
        if self.host.live:
            self._look_at_removals()
            self._look_at_units()
            self._look_at_failures()

    def _look_at_removals(self) -> None:
        """See which timers, programs that run on and idle slices stop, and which units are widened because they lose a setting."""
        changes = self.report.changes
        files = [path for path, (before, after) in changes.items() if after.text is None]
        files += [path for path in self.interrupted if not self.host.exists(path)]
        units = [posixpath.basename(path) for path in dict.fromkeys(files) if posixpath.dirname(path) == UNIT_FOLDER]
        self.slices = [unit for unit in units if unit.endswith(".slice")]
        users = self.systemd.users(self.slices, units_of(path for path, states in changes.items() if self._leaves(*states)))
        for path, states in changes.items():
            unit, lost = unit_of(path), _lost_settings(*states)
            if unit and lost and (unit in users or unit not in self.slices) and self.systemd.cgroup(unit):
                self.to_widen.setdefault(unit, set()).update(lost)
        lasting = {unit_of(path) for path, (before, _after) in changes.items() if settings(before.text).get("Type") == "exec"}
        self.timers = self.systemd.active([unit for unit in units if unit.endswith(".timer") or unit in lasting])
        self.report.actions += ["widen %s" % unit for unit in self.to_widen]
        self.report.actions += ["stop %s" % unit for unit in self.timers]
        self.report.actions += ["stop %s" % unit for unit in self.systemd.active([name for name in self.slices if name not in users])]
        self.report.slices_left = sorted(users)
        self.report.restart_needed = sorted(set().union(*users.values()))

    def _leaves(self, before: FileState, after: FileState) -> bool:
        """Whether a drop-in goes that puts its unit into a slice that goes."""
        return after.text is None and settings(before.text).get("Slice") in self.slices

    def _look_at_units(self) -> None:
        report, request = self.report, self.request
        active = self.systemd.active(request.started)
        report.actions += ["start %s" % unit for unit in request.started if unit not in active]
        if not report.changes and not report.actions:
            report.actions += ["reload: " + sentence for sentence in drift(self.systemd, request)]
        changed = set(report.changes) | set(self.interrupted)
        self.to_restart = self.systemd.active([entry["unit"] for entry in request.restarted if changed & set(entry["files"])])
        for unit in [unit for unit in self.to_restart if request.tolerant and self.systemd.masked(unit)]:
            self.to_restart.remove(unit)
            report.unfinished.append("%s runs and is masked, so that it cannot be restarted: systemctl unmask %s" % (unit, unit))
        report.actions += ["restart %s" % unit for unit in self.to_restart]
        if self.interrupted:
            report.actions.append("reload: an earlier run was interrupted")
        services = set(units_of(path for path, states in report.changes.items() if not (self._leaves(*states) or _is_live(*states))))
        ours = {entry["unit"] for entry in request.restarted}
        waiting = self.systemd.active(sorted(unit for unit in services - ours if unit.endswith(".service")))
        report.restart_needed = sorted(set(report.restart_needed + waiting))

    def _look_at_failures(self) -> None:
        if programs.programs(self.request.files):
            self.report.failed_units = list(programs.failed(self.host))
            self.report.actions += ["run %s again, which had failed" % unit for unit in self.report.failed_units]

    def run(self) -> None:
        self.begun = True
        _record(self.host, self.report.changes, [link for unit in self.to_enable() for link in enable_links(unit, self._text(unit))])
        if self.host.live:
            if self.report.changes:
                _previous.record(self.host, INTERRUPTED, list(self.report.changes))
            self._widen()
        for path, (before, after) in self.report.changes.items():
            unit = unit_of(path)
            if unit and "WantedBy" in settings(before.text) and is_ours(before.text or "") and not is_ours(after.text or ""):
                self.disabled.append((unit, before.text))
                self.systemd.disable(unit, before.text)
            self.written.append(path)
            after.put(self.host, path)
        for path, state in self.request.files.items():
            if state.link is not None and not self.host.exists(path):
                state.put(self.host, path)
        self._remove_folders()
        if self.host.live:
            programs.try_out(self.host, self.request.files)
            irqbalance.label(self.host, self.written)
        for unit in self.to_enable():
            self.enabled.append((unit, self._text(unit)))
            self.systemd.enable(*self.enabled[-1])
        if self.host.live:
            if self.to_widen or self.enabled or any(unit_of(path) for path in self.report.changes):
                self.systemd.reload()
            self._follow_live()
        for unit in self.request.stopped:
            self._stop(unit)
        for unit, before in self.released.items():
            self._release(unit, before)

    def _widen(self) -> None:
        if self.interrupted:
            self.systemd.reload()
        units = list(self.to_widen) + [unit for unit in units_of(self.interrupted) if unit not in self.to_widen]
        for unit in _outermost_first(units):
            keys = self.to_widen.get(unit) or set(self.systemd.narrow(unit))
            if keys:
                self.to_widen[unit] = keys
                self.systemd.widen(unit, keys)
                self.systemd.drop_runtime_settings(unit)

    def _remove_folders(self) -> None:
        for path in former_bytecode(self.host):
            remove_file(self.host, path)
        remove_empty(self.host, _previous.recorded(self.host).get("folders", []) + former_folders(self.host))

    def to_enable(self) -> list[str]:
        return [unit for unit in self.request.enabled if not self.systemd.enabled(unit, self._text(unit))]

    def _text(self, unit: str) -> str | None:
        path = "%s/%s" % (UNIT_FOLDER, unit)
        if path in self.request.files:
            return self.request.files[path].text
        return self.systemd.text(unit)

    def _follow_live(self) -> None:
        if self.timers:
            self.systemd.stop(self.timers)
        self._stop_idle_slices()
        active = self.systemd.active(self.request.started)
        self.started = [unit for unit in self.request.started if unit not in active]
        if self.started:
            self.systemd.start(self.started)
        for unit in self.to_restart:
            self._restart(unit)
        if not self.report.changes and drift(self.systemd, self.request):
            self.systemd.reload()
        concerned = units_of([*self.report.changes, *self.interrupted])
        live_sets.follow(self.systemd, concerned + [entry["unit"] for entry in self.request.expected])
        wrong = drift(self.systemd, self.request)
        if wrong:
            raise ValueError("the kernel does not grant what the unit files say: " + "; ".join(wrong))
        self.report.unfinished += [sentence for unit in self.to_widen for sentence in self.systemd.narrow(unit).values()]

    def _restart(self, unit: str) -> None:
        self.restarted.append(unit)
        try:
            self.systemd.restart(unit)
        except (CommandError, ValueError) as error:
            if not self.request.tolerant:
                raise
            self.report.unfinished.append("%s could not be restarted: %s" % (unit, error))

    def _stop_idle_slices(self) -> None:
        """Stop removed slices that nothing needs. Before the reload that would stop running services whose drop-in names the slice."""
        users = self.systemd.users(self.slices)
        self.report.slices_left = sorted(users)
        self.idle = self.systemd.active([name for name in self.slices if name not in users])
        if self.idle:
            self.systemd.stop(self.idle)

    def _stop(self, unit: str) -> None:
        running = runs_or_would(self.host, self.systemd, unit)
        if not running:
            return
        links = self.systemd.links(unit)
        enabled = {} if self.systemd.enabled(unit, self._text(unit)) else {"enabled": False}
        before = dict(enabled, running=running == "active" or not self.host.live)
        if unit not in _previous.recorded(self.host):
            _previous.record(self.host, unit, before)
        self.stopped.append((unit, before))
        _record_files(self.host, {path: FileState.of(self.host, path) for path in links})
        if self.host.live:
            self.systemd.stop([unit])
        self.systemd.disable(unit, self._text(unit))
        if self.host.live and links:
            self.systemd.reload()

    def _release(self, unit: str, before: Mapping[str, Any]) -> None:
        self.given_back.append((unit, standing(self.host, self.systemd, unit)))
        self._start_again(unit, before)
        _previous.keep(self.host, [section for section in _previous.recorded(self.host) if section != unit])

    def _start_again(self, unit: str, before: Mapping[str, Any]) -> None:
        text, recorded = self._text(unit), _previous.recorded(self.host)
        for path, values in recorded.get("files", {}).items():
            if posixpath.basename(values.get("link") or "") == unit and not self.host.exists(path):
                FileState.from_record(values).put(self.host, path)
        if text is not None and before.get("enabled", True) and (self.host.live or not self.systemd.enabled(unit, text)):
            self.systemd.enable(unit, text)
            if self.host.live:
                self.systemd.reload()
        if text is not None and before.get("running") and self.host.live:
            self.systemd.start([unit])

    def finish(self) -> None:
        """Forget that this run and an earlier one were under way, unless something is left that the next run tries again."""
        if not self.report.unfinished:
            self._forget(self.interrupted + list(self.report.changes))

    def _stop_started(self) -> None:
        """Stop what the run started, now that no drop-in names it any more, but for slices in use."""
        users = self.systemd.users([unit for unit in self.started if unit.endswith(".slice")])
        idle = self.systemd.active([unit for unit in self.started if unit not in users])
        if idle:
            self.systemd.stop(idle)

    def _forget(self, paths: Sequence[str]) -> None:
        if not self.host.live:
            return
        try:
            _previous.forget(self.host, INTERRUPTED, paths)
        except OSError as error:
            raise ValueError("%s could not be written: %s; make room and run again" % (_previous.PATH, error.strerror or error))

    def undo(self) -> None:
        """Put everything back but previous.json. Raises ``ValueError`` with what could not be; the next run then finishes."""
        if not self.begun:
            return
        parts = (self._undo_enabled, self._undo_files, self._undo_systemd, self._undo_given_back, self._undo_stopped)
        each(parts)

    def _undo_enabled(self) -> None:
        for unit, text in self.enabled:
            self.systemd.disable(unit, text)

    def _undo_files(self) -> None:
        for path in reversed(self.written):
            before = self.report.changes[path][0]
            if FileState.of(self.host, path) != before:
                before.put(self.host, path)
        self._remove_folders()

    def _undo_systemd(self) -> None:
        for unit, text in self.disabled:
            if not self.systemd.enabled(unit, text):
                self.systemd.enable(unit, text)
        if self.host.live:
            for unit in self.to_widen:
                self.systemd.drop_runtime_settings(unit)
            if self.to_widen or self.enabled or self.disabled or any(unit_of(path) for path in self.written):
                self.systemd.reload()
                live_sets.follow(self.systemd, units_of(self.written) + list(self.to_widen))
            if self.timers + self.idle:
                self.systemd.start(self.timers + self.idle)
            self._stop_started()
            self._widen_again()
            for unit in self.restarted:
                self.systemd.restart(unit)

    def _widen_again(self) -> None:
        """Widen what this run has confined: without its setting it stays narrow."""
        gained = units_of(path for path in self.written if _lost_settings(*reversed(self.report.changes[path])))
        found = False
        for unit in _outermost_first(gained):
            keys = set(self.systemd.narrow(unit))
            if keys:
                self.systemd.widen(unit, keys)
                self.systemd.drop_runtime_settings(unit)
                found = True
        if found:
            self.systemd.reload()

    def _undo_given_back(self) -> None:
        for unit, before in self.given_back:
            take_away(self.host, self.systemd, unit, self._text(unit), before)

    def _undo_stopped(self) -> None:
        for unit, before in self.stopped:
            self._start_again(unit, before)


Standing = Tuple[bool, bool]
"""Whether a unit runs, and whether links enable it."""


def standing(host: Host, systemd: Systemd, unit: str) -> Standing:
    return host.live and bool(systemd.active([unit])), bool(systemd.links(unit))


def take_away(host: Host, systemd: Systemd, unit: str, text: str | None, before: Standing) -> None:
    """Stop and disable a unit of others that was started and enabled again, as far as it was neither before."""
    was_running, was_enabled = before
    running, enabled = standing(host, systemd, unit)
    if running and not was_running:
        systemd.stop([unit])
    if enabled and not was_enabled:
        systemd.disable(unit, text)
        if host.live:
            systemd.reload()


def each(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step, whatever becomes of the others. Raises ``ValueError`` with what could not be done."""
    failed = []
    for step in steps:
        try:
            step()
        except (OSError, ValueError, CommandError) as error:
            failed.append(str(error))
    if failed:
        raise ValueError("; ".join(failed))


def runs_or_would(host: Host, systemd: Systemd, unit: str) -> str | None:
    """Return how a unit runs, or None when it does not: ``active`` now, or ``enabled``, so that it would at the next boot."""
    if host.live and systemd.active([unit]):
        return "active"
    return "enabled" if systemd.links(unit) else None


def drift(systemd: Systemd, request: Request) -> list[str]:
    """Return one sentence per unit whose effective CPUs or memory nodes are not the expected ones.

    One without a cgroup that need not run, such as ``user.slice`` while nobody is logged in, gets them when it starts.
    """
    sentences = []
    for entry in request.expected:
        if entry["unit"] not in request.started and systemd.cgroup(entry["unit"]) is None:
            continue
        for kind, word in (("cpus", "CPUs"), ("mems", "memory nodes")):
            wanted = set(expand(entry.get(kind) or ""))
            found = systemd.effective(entry["unit"], kind) if wanted else None
            if wanted and found != wanted:
                shown = "no cpuset at all" if found is None else compress(found) or "none"
                sentence = "%s should have %s %s and has %s" % (entry["unit"], word, compress(wanted), shown)
                by_hand = systemd.set_by_hand(entry["unit"])
                if by_hand:
                    sentence += " (overridden by %s; 'systemctl revert %s' removes that)" % (", ".join(by_hand), entry["unit"])
                sentences.append(sentence)
    return sentences


class _Record:
    """previous.json as it was before a transaction."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.state = FileState.of(host, _previous.PATH)
        self.folders = missing_folders(host, [_previous.PATH])

    def restore(self) -> None:
        if FileState.of(self.host, _previous.PATH) != self.state:
            self.state.put(self.host, _previous.PATH)
        remove_empty(self.host, self.folders)


def apply(host: Host, request: Request, check: bool = False, before: Sequence[Step] = (), after: Sequence[Step] = ()) -> Report:
    """Bring the host to the requested state and return the :class:`Report`; ``before`` and ``after`` are steps of the same transaction.

    Raises ``ValueError`` with a sentence when the request is unsafe, and its kind :class:`TakenBack` when it could not be reached.
    """
    transaction = Transaction(host, request)
    transaction.look()
    for step in [*before, *after]:
        step.look(check)
    new_state = request.applied is not None and request.applied.new
    if check or not (new_state or transaction.report.changed or any(step.needed for step in [*before, *after])):
        return transaction.report
    stopped = journal.stopped(host)
    not_started = journal.finish(host, transaction.systemd)
    record = None
    begun: list[Step] = []
    try:
        record = _Record(host)
        for step in [*before, *after]:
            step.prepare()
        _run(before, begun)
        changed_before = any(step.changed for step in before)
        if changed_before:
            transaction = Transaction(host, request)
            transaction.look()
        if transaction.report.changed or changed_before:
            transaction.run()
        _run(after, begun)
        for step in begun:
            step.finish()
        changed = new_state or transaction.report.changed or any(step.changed for step in begun)
        if changed and request.applied:  # last: what fails after it would be undone, and the entry not
            transaction.report.history = entries.keep(host, request.applied)
    except (OSError, ValueError, CommandError) as error:
        raise TakenBack("%s%s" % (error, _take_back(transaction, record, begun)))
    transaction.finish()
    report = transaction.report
    report.actions = ["start %s again" % unit for unit in stopped if "start %s again" % unit not in report.actions] + report.actions
    report.warnings += [journal.sentence(unit) for unit in stopped]
    report.not_started = not_started
    report.untried = programs.untried(host, request.files)
    return report


def _run(steps: Iterable[Step], begun: list[Step]) -> None:
    for step in steps:
        begun.append(step)
        step.run()


def _take_back(transaction: Transaction, record: _Record | None, begun: Sequence[Step]) -> str:
    """Undo what was done until a step failed, and return what became of it, as the end of a sentence.

    The files come first: a thread can go back only to CPUs that its slice grants again.
    """
    changed = [step.title for step in begun if step.changed and step.title]
    kinds = ["files"][: len(transaction.written)] + changed
    try:
        each([transaction.undo] + [step.undo for step in reversed(begun)])
        if record:
            record.restore()  # as long as anything is to be put back, it says what
    except (OSError, ValueError) as second:
        written = ", ".join(transaction.written)
        return "; putting the files back failed as well: %s. Files written: %s" % (second, written)
    listed = " and ".join([", ".join(kinds[:-1])][: len(kinds) - 1] + kinds[-1:])
    return ". %s" % ("All %s were put back as they were" % listed if kinds else "No file was changed")
