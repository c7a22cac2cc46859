# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a set of host files and the systemd units that they configure to the wanted state, wholly or not at all.

Order: compare, refuse what is unsafe, record what was there before the first bind, write, reload, enable, start, read back what
the kernel grants. When a step fails, every file is put back and systemd is told again.

This module is private to the collection.
"""

from __future__ import annotations

import posixpath

from . import _previous
from ._cpulist import compress, expand
from ._files import FileState, is_ours
from ._host import CommandError
from ._systemd import RUNTIME_CONTROL, UNIT_FOLDER, Systemd, settings, unit_of

_CPUSET_KEYS = ("AllowedCPUs", "AllowedMemoryNodes")


class Request:
    """What a host should have. All paths are absolute paths of the machine.

    ``files``: list of ``{path, content, mode}``; ``owned``: shell patterns of paths where a file of ours that is not in ``files``
    is removed; ``enabled``, ``started``, ``stopped``: unit names; ``restarted``: list of ``{unit, files}``, a unit restarted when one
    of those files changed; ``expected``: list of ``{unit, cpus, mems}``, cpulists that the kernel must grant ('' = not checked);
    ``move_memory``: whether memory nodes of a unit with processes may change.
    """

    def __init__(self, files=(), owned=(), enabled=(), started=(), stopped=(), restarted=(), expected=(), move_memory=False):
        self.files = {entry["path"]: FileState(entry["content"], int(str(entry.get("mode") or "0644"), 8)) for entry in files}
        self.owned = owned
        self.enabled = enabled
        self.started = started
        self.stopped = stopped
        self.restarted = restarted
        self.expected = expected
        self.move_memory = move_memory


class Report:
    """What was (or in check mode would be) done; ``changes`` maps a path to its :class:`FileState` before and after."""

    def __init__(self):
        self.changes = {}
        self.actions = []
        self.restart_needed = []

    @property
    def changed(self):
        return bool(self.changes or self.actions)


def _stale(host, request):
    """Yield the paths of our own files that the request no longer has."""
    for pattern in request.owned:
        folder, name = posixpath.split(pattern)
        parent, inner = posixpath.split(folder)
        folders = ["%s/%s" % (parent, found) for found in host.names(parent, inner)] if "*" in inner else [folder]
        for candidate in folders:
            for found in host.names(candidate, name):
                path = "%s/%s" % (candidate, found)
                text = FileState.of(host, path).text if path not in request.files else None
                if text is not None and is_ours(text):
                    yield path


def compare(host, request):
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


def _refuse_moving_memory(systemd, changes):
    for path, (before, after) in changes.items():
        unit = unit_of(path)
        nodes = [settings(state.text).get("AllowedMemoryNodes", "") for state in (before, after)]
        old, new = (set(expand(value)) for value in nodes)
        loses_nodes = bool(new) and not (old and old <= new)
        if unit and loses_nodes and systemd.populated(unit):
            raise ValueError(
                "%s has running processes: changing its memory nodes from %s to %s would move their pages, at hundreds of MB/s. "
                "Stop what runs in it first, or set npu_affinity_move_memory: true" % (unit, nodes[0] or "all", nodes[1])
            )


def _record_foreign(host, changes):
    foreign = {
        path: {"content": before.text, "mode": "%04o" % before.mode}
        for path, (before, after) in changes.items()
        if before.text is not None and not is_ours(before.text)
    }
    if foreign:
        _previous.record(host, "files", foreign)


def _loses_cpuset(before, after):
    return any(key in settings(before.text) and key not in settings(after.text) for key in _CPUSET_KEYS)


class _Apply:
    """One transaction on one host; ``undo`` puts the files back in the reverse order."""

    def __init__(self, host, request, report):
        self.host = host
        self.request = request
        self.report = report
        self.systemd = Systemd(host)
        self.written = []

    def run(self):
        changes = self.report.changes
        units_changed = any(unit_of(path) for path in changes)
        if self.host.live:
            self._widen_before_removal()
        for path, (before, after) in changes.items():
            unit = unit_of(path)
            if after.text is None and unit and "WantedBy" in settings(before.text):
                self.systemd.disable(unit, before.text)
            self.written.append(path)
            after.put(self.host, path)
        if units_changed and self.host.live:
            self.systemd.reload()
        for unit in self.to_enable():
            self.systemd.enable(unit, self._text(unit))
        if self.host.live:
            self._follow_live()
        for unit in self.request.stopped:
            self._stop(unit)

    def _widen_before_removal(self):
        wide = self.host.read("/sys/devices/system/cpu/online"), self.host.read("/sys/devices/system/node/has_memory")
        for path, (before, after) in self.report.changes.items():
            unit = unit_of(path)
            if not unit or not _loses_cpuset(before, after):
                continue
            if unit.endswith(".slice") and posixpath.dirname(path) == UNIT_FOLDER and not self.systemd.populated(unit):
                self.systemd.stop(unit)
            elif self.systemd.cgroup(unit):
                self.systemd.widen(unit, *wide)
                for leftover in self.systemd.set_by_hand(unit, [RUNTIME_CONTROL]):
                    FileState(None, None).put(self.host, leftover)

    def to_enable(self):
        return [unit for unit in self.request.enabled if not self.systemd.enabled(unit, self._text(unit))]

    def _text(self, unit):
        path = "%s/%s" % (UNIT_FOLDER, unit)
        if path in self.request.files:
            return self.request.files[path].text
        return self.host.read(path) or self.host.read("/usr/lib/systemd/system/" + unit)

    def _follow_live(self):
        active = self.systemd.active(self.request.started)
        missing = [unit for unit in self.request.started if unit not in active]
        if missing:
            self.systemd.start(missing)
        for entry in self.request.restarted:
            if set(entry["files"]) & set(self.report.changes) and self.systemd.active([entry["unit"]]):
                self.systemd.restart(entry["unit"])
        wrong = drift(self.systemd, self.request.expected)
        if wrong and not self.report.changes:
            self.systemd.reload()
            wrong = drift(self.systemd, self.request.expected)
        if wrong:
            raise ValueError("the kernel does not grant what the unit files say: " + "; ".join(wrong))

    def _stop(self, unit):
        if not unit_is_running(self.host, self.systemd, unit):
            return
        _previous.record(self.host, unit, {"running": True})
        if self.host.live:
            self.systemd.stop(unit)
        self.systemd.disable(unit, self._text(unit))

    def undo(self):
        for path in reversed(self.written):
            self.report.changes[path][0].put(self.host, path)
        if self.host.live and any(unit_of(path) for path in self.written):
            self.systemd.reload()


def unit_is_running(host, systemd, unit):
    """Whether a unit is active (running machine) or would start at boot (any other tree)."""
    if host.live:
        return bool(systemd.active([unit]))
    return any(host.exists("%s/%s/%s" % (UNIT_FOLDER, wants, unit)) for wants in host.names(UNIT_FOLDER, "*.wants"))


def drift(systemd, expected):
    """Return one sentence per unit whose effective CPUs or memory nodes are not the expected ones."""
    sentences = []
    for entry in expected:
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


def apply(host, request, check=False):
    """Bring the host to the requested state and return the :class:`Report`.

    Raises ``ValueError`` with a sentence when the request is unsafe or could not be reached; the files are then as they were.
    """
    report = Report()
    systemd = Systemd(host)
    report.changes = compare(host, request)
    transaction = _Apply(host, request, report)
    if host.live and not request.move_memory:
        _refuse_moving_memory(systemd, report.changes)
    report.actions += ["enable %s" % unit for unit in transaction.to_enable()]
    report.actions += ["stop %s" % unit for unit in request.stopped if unit_is_running(host, systemd, unit)]
    if host.live:
        active = systemd.active(request.started)
        report.actions += ["start %s" % unit for unit in request.started if unit not in active]
        if not report.changes and not report.actions:
            report.actions += ["reload: " + sentence for sentence in drift(systemd, request.expected)]
        services = {unit_of(path) for path in report.changes} - {None}
        ours = {entry["unit"] for entry in request.restarted} | set(request.started)
        report.restart_needed = systemd.active(sorted(unit for unit in services - ours if unit.endswith(".service")))
    if check or not report.changed:
        return report
    try:
        _record_foreign(host, report.changes)
        transaction.run()
    except (OSError, ValueError, CommandError) as error:
        try:
            transaction.undo()
        except (OSError, ValueError, CommandError) as second:
            written = ", ".join(transaction.written)
            raise ValueError("%s; putting the files back failed as well: %s. Files written: %s" % (error, second, written))
        raise ValueError("%s. %s" % (error, "All files were put back as they were" if transaction.written else "No file was changed"))
    return report
