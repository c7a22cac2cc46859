# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What running units do of a request: those of removed files stop, others start, restart, and get the CPU sets of their files."""

from __future__ import annotations

import posixpath
from typing import Iterable, Sequence

from .._base.cpulist import compress, expand
from .._host.host import CommandError
from .._state.files import FileState
from .._state.systemd import CPUSET_KEYS, UNIT_FOLDER, Systemd, settings, unit_of, units_of
from .._kernel.machine import slice_path
from . import live_sets
from .request import Report, Request


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
            more = set(expand(entry.get("more") or "")) if kind == "cpus" else set()
            if wanted and (found is None or not wanted <= found <= wanted | more):
                shown = "no cpuset at all" if found is None else compress(found) or "none"
                sentence = "%s should have %s %s and has %s" % (entry["unit"], word, compress(wanted), shown)
                by_hand = systemd.set_by_hand(entry["unit"])
                if by_hand:
                    sentence += " (overridden by %s; remove the file, run 'systemctl daemon-reload', and bind)" % ", ".join(by_hand)
                sentences.append(sentence)
    return sentences


def _outermost_first(units: Iterable[str]) -> list[str]:
    """Sort units for widening: what is inside a narrow one does not look narrow."""
    return sorted(units, key=lambda unit: slice_path(unit) if unit.endswith(".slice") else "~")


def _lost_settings(before: FileState, after: FileState) -> set[str]:
    return {key for key in CPUSET_KEYS if key in settings(before.text) and key not in settings(after.text)}


def _is_live(before: FileState, after: FileState) -> bool:
    """Whether a file has nothing but CPU sets, which running units follow, and a mask of all CPUs within these."""
    keys = {*settings(before.text), *settings(after.text)}
    return keys <= ({*CPUSET_KEYS, "CPUAffinity"} if "AllowedCPUs" in keys else set(CPUSET_KEYS))


class LiveUnits:
    """The running units that a request concerns. ``interrupted`` are the paths that a killed run began to change."""

    def __init__(self, systemd: Systemd, request: Request, report: Report, interrupted: Sequence[str]) -> None:
        self.host = systemd.host
        self.systemd = systemd
        self.request = request
        self.report = report
        self.interrupted = interrupted
        self._started: list[str] = []
        self._slices: list[str] = []
        self._to_stop: list[str] = []
        self._to_widen: dict[str, set[str]] = {}
        self._to_restart: list[str] = []
        self._restarted: list[str] = []
        self._idle: list[str] = []

    def look_at_removals(self) -> None:
        """See which timers, programs that run on and idle slices stop, and which units are widened because they lose a setting."""
        changes = self.report.changes
        files = [path for path, (before, after) in changes.items() if after.text is None]
        files += [path for path in self.interrupted if not self.host.exists(path)]
        units = [posixpath.basename(path) for path in dict.fromkeys(files) if posixpath.dirname(path) == UNIT_FOLDER]
        self._slices = [unit for unit in units if unit.endswith(".slice")]
        users = self.systemd.users(self._slices, units_of(path for path, states in changes.items() if self._leaves(*states)))
        for path, states in changes.items():
            unit, lost = unit_of(path), _lost_settings(*states)
            if unit and lost and (unit in users or unit not in self._slices) and self.systemd.cgroup(unit):
                self._to_widen.setdefault(unit, set()).update(lost)
        lasting = {unit_of(path) for path, (before, _after) in changes.items() if settings(before.text).get("Type") == "exec"}
        self._to_stop = self.systemd.active([unit for unit in units if unit.endswith(".timer") or unit in lasting])
        self.report.actions += ["widen %s" % unit for unit in self._to_widen]
        self.report.actions += ["stop %s" % unit for unit in self._to_stop]
        self.report.actions += ["stop %s" % unit for unit in self.systemd.active([name for name in self._slices if name not in users])]
        self.report.slices_left = sorted(users)
        self.report.restart_needed = sorted(set().union(*users.values()))

    def _leaves(self, before: FileState, after: FileState) -> bool:
        """Whether a drop-in is removed that has its unit in a slice that is removed."""
        return after.text is None and settings(before.text).get("Slice") in self._slices

    def look_at_units(self) -> None:
        report, request = self.report, self.request
        active = self.systemd.active(request.started)
        report.actions += ["start %s" % unit for unit in request.started if unit not in active]
        if not report.changes and not report.actions:
            report.actions += ["reload: " + sentence for sentence in drift(self.systemd, request)]
        changed = set(report.changes) | set(self.interrupted)
        self._to_restart = self.systemd.active([entry["unit"] for entry in request.restarted if changed & set(entry["files"])])
        for unit in [unit for unit in self._to_restart if request.tolerant and self.systemd.masked(unit)]:
            self._to_restart.remove(unit)
            report.unfinished.append("%s runs and is masked, and cannot be restarted: systemctl unmask %s" % (unit, unit))
        report.actions += ["restart %s" % unit for unit in self._to_restart]
        if self.interrupted:
            report.actions.append("reload: an earlier run was interrupted")
        services = set(units_of(path for path, states in report.changes.items() if not (self._leaves(*states) or _is_live(*states))))
        ours = {entry["unit"] for entry in request.restarted}
        waiting = self.systemd.active(sorted(unit for unit in services - ours - set(self._to_stop) if unit.endswith(".service")))
        report.restart_needed = sorted(set(report.restart_needed + waiting))

    def widen(self) -> None:
        interrupted = units_of(self.interrupted)
        for unit in interrupted:
            self.systemd.drop_runtime_settings(unit)  # which would override the files until the next boot
        if self.interrupted:
            self.systemd.reload()
        units = list(self._to_widen) + [unit for unit in interrupted if unit not in self._to_widen]
        for unit in _outermost_first(units):
            keys = self._to_widen.get(unit) or set(self.systemd.narrow(unit))
            if keys:
                self._to_widen[unit] = keys
                self.systemd.widen(unit, keys)
                self.systemd.drop_runtime_settings(unit)

    def follow(self, linked: bool) -> None:
        """Let systemd and its units follow the files; ``linked``: whether links of units were changed, too."""
        if self._to_widen or linked or any(unit_of(path) for path in self.report.changes):
            self.systemd.reload()
        if self._to_stop:
            self.systemd.stop(self._to_stop)
        self._stop_idle_slices()
        active = self.systemd.active(self.request.started)
        self._started = [unit for unit in self.request.started if unit not in active]
        if self._started:
            self.systemd.start(self._started)
        for unit in self._to_restart:
            self._restart(unit)
        if not self.report.changes and drift(self.systemd, self.request):
            self.systemd.reload()
        concerned = units_of([*self.report.changes, *self.interrupted])
        live_sets.follow(self.systemd, concerned + [entry["unit"] for entry in self.request.expected])
        wrong = drift(self.systemd, self.request)
        if wrong:
            raise ValueError("the kernel does not grant what the unit files say: " + "; ".join(wrong))
        self.report.unfinished += [sentence for unit in self._to_widen for sentence in self.systemd.narrow(unit).values()]

    def _restart(self, unit: str) -> None:
        self._restarted.append(unit)
        try:
            self.systemd.restart(unit)
        except (CommandError, ValueError) as error:
            if not self.request.tolerant:
                raise
            self.report.unfinished.append("%s could not be restarted: %s" % (unit, error))

    def _stop_idle_slices(self) -> None:
        """Stop removed slices that nothing needs. Before the reload that would stop running services whose drop-in names the slice."""
        users = self.systemd.users(self._slices)
        self.report.slices_left = sorted(users)
        self._idle = self.systemd.active([name for name in self._slices if name not in users])
        if self._idle:
            self.systemd.stop(self._idle)

    def undo(self, written: Sequence[str], linked: bool) -> None:
        """Put the units back when the files are as they were; ``linked``: whether links of units were changed, too."""
        for unit in self._to_widen:
            self.systemd.drop_runtime_settings(unit)
        if self._to_widen or linked or any(unit_of(path) for path in written):
            self.systemd.reload()
            live_sets.follow(self.systemd, units_of(written) + list(self._to_widen))
        if self._to_stop + self._idle:
            self.systemd.start(self._to_stop + self._idle)
        self._stop_started()
        self._widen_again(written)
        for unit in self._restarted:
            self.systemd.restart(unit)

    def _stop_started(self) -> None:
        """Stop what the run started, now that no drop-in names it any more, except for slices in use."""
        users = self.systemd.users([unit for unit in self._started if unit.endswith(".slice")])
        idle = self.systemd.active([unit for unit in self._started if unit not in users])
        if idle:
            self.systemd.stop(idle)

    def _widen_again(self, written: Sequence[str]) -> None:
        """Widen what this run has confined: without its setting it stays narrow."""
        gained = units_of(path for path in written if _lost_settings(*reversed(self.report.changes[path])))
        found = False
        for unit in _outermost_first(gained):
            keys = set(self.systemd.narrow(unit))
            if keys:
                self.systemd.widen(unit, keys)
                self.systemd.drop_runtime_settings(unit)
                found = True
        if found:
            self.systemd.reload()
