# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What running units do of a request: those of removed files stop, others start, restart, and get the CPU sets of their files."""

from __future__ import annotations

import posixpath
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .._base.cpulist import compress, expand
from .._host.host import CommandError, Host
from .._state.files import FileState
from .._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, UNIT_FOLDER, Systemd, settings, unit_of, units_of
from .._state.unit_files import numbers, values
from .._kernel.machine import slice_path
from .request import Report, Request

Sets = Mapping[str, "set[int]"]
"""CPUs and memory nodes by the keys of unit files."""


class _Unit(NamedTuple):
    """``live``: what its control group is configured for, without a key where it has no cpuset; ``wanted``: what of its files differs."""

    name: str
    live: Sets
    wanted: Sets


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
            effective = systemd.effective(entry["unit"], kind) if wanted else None
            more = set(expand(entry.get("more") or "")) if kind == "cpus" else set()
            if wanted and (effective is None or not wanted <= effective <= wanted | more):
                shown = "no cpuset at all" if effective is None else compress(effective) or "none"
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


def follow_files(systemd: Systemd, units: Iterable[str]) -> None:
    """Give running units the CPU sets and memory nodes of their files, where a reload of systemd did not.

    systemd 256 and 257 read changed sets at ``daemon-reload`` and leave the running unit as it was (systemd pull request 38190).
    ``set-property`` applies a set at once. Its drop-in is removed again, and later reloads leave the set alone. A unit that somebody
    overrides with ``set-property --runtime`` is left alone, and so is one that does not run.
    """
    behind = {}
    for name in dict.fromkeys(units):
        wanted = _sets_of_files(systemd.host, name)
        folder = systemd.cgroup(name) if wanted and not systemd.set_by_hand(name, RUNTIME_CONTROLS) else None
        if folder is not None:
            texts = {key: systemd.host.read("%s/cpuset.%s" % (folder, kind)) for key, (kind, _word) in CPUSET_KEYS.items()}
            live = {key: set(expand(text)) for key, text in texts.items() if text is not None}
            differing = {key: value for key, value in wanted.items() if live.get(key) != value}
            if differing:
                behind[folder] = _Unit(name, live, differing)
    if not behind:
        return
    try:
        for name, sets in _steps(behind):
            systemd.set_live(name, sets)
    finally:
        for unit in behind.values():
            systemd.drop_runtime_settings(unit.name)
        systemd.reload()


def _sets_of_files(host: Host, unit: str) -> Sets:
    settings_of_files = values(host, unit)
    sets_by_key = {key: [numbers(value) or set() for _path, value in settings_of_files.get(key, ())] for key in CPUSET_KEYS}
    return {key: set().union(*sets) for key, sets in sets_by_key.items() if any(sets)}


def _steps(behind: Mapping[str, _Unit]) -> Iterator[tuple[str, Sets]]:
    """Yield units by the folders of their groups, and the sets to give them, in order.

    The kernel grants a group the part of its set that the group around it has, and all of that where there is no such part. So an outer
    group has its old and its new set while those inside change: no process runs on CPUs of another NPU, and no page moves twice.
    """
    outer = [folder for folder in sorted(behind) if any(other.startswith(folder + "/") for other in behind)]
    for folder in outer:
        name, live, wanted = behind[folder]
        yield name, {key: live[key] | value for key, value in wanted.items() if key in live and value - live[key]}
    for folder in sorted(set(behind) - set(outer)):
        yield behind[folder].name, behind[folder].wanted
    for folder in reversed(outer):
        name, live, wanted = behind[folder]
        yield name, {key: value for key, value in wanted.items() if key not in live or live[key] - value}


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
        """Give units that lose a setting all CPUs or memory nodes, also those that a killed run left narrow."""
        interrupted = units_of(self.interrupted)
        for unit in interrupted:
            self.systemd.drop_runtime_settings(unit)  # which would override the files until the next boot
        if self.interrupted:
            self.systemd.reload()
        for unit in _outermost_first(dict.fromkeys([*self._to_widen, *interrupted])):
            self._to_widen[unit] = self._to_widen.get(unit) or set(self.systemd.narrow(unit))
            self.systemd.widen(unit, self._to_widen[unit])
        self._to_widen = {unit: keys for unit, keys in self._to_widen.items() if keys}

    def follow(self, linked: bool) -> None:
        """Let systemd and its units follow the files; ``linked``: whether links of units were changed, too."""
        if self._to_widen or linked or any(unit_of(path) for path in self.report.changes):
            self.systemd.reload()
        if self._to_stop:
            self.systemd.stop(self._to_stop)
        users = self.systemd.users(self._slices)
        self.report.slices_left = sorted(users)
        self._idle = self.systemd.active([name for name in self._slices if name not in users])
        if self._idle:
            self.systemd.stop(self._idle)
        active = self.systemd.active(self.request.started)
        self._started = [unit for unit in self.request.started if unit not in active]
        if self._started:
            self.systemd.start(self._started)
        for unit in self._to_restart:
            self._restart(unit)
        if not self.report.changes and drift(self.systemd, self.request):
            self.systemd.reload()
        concerned = units_of([*self.report.changes, *self.interrupted])
        follow_files(self.systemd, concerned + [entry["unit"] for entry in self.request.expected])
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

    def undo(self, written: Sequence[str], linked: bool) -> None:
        """Put the units back when the files are as they were; ``linked``: whether links of units were changed, too."""
        for unit in self._to_widen:
            self.systemd.drop_runtime_settings(unit)
        if self._to_widen or linked or any(unit_of(path) for path in written):
            self.systemd.reload()
            follow_files(self.systemd, units_of(written) + list(self._to_widen))
        if self._to_stop + self._idle:
            self.systemd.start(self._to_stop + self._idle)
        users = self.systemd.users([unit for unit in self._started if unit.endswith(".slice")])
        idle = self.systemd.active([unit for unit in self._started if unit not in users])
        if idle:  # what the run started: no drop-in names it any more
            self.systemd.stop(idle)
        gained = units_of(path for path in written if _lost_settings(*reversed(self.report.changes[path])))
        widened = [unit for unit in _outermost_first(gained) if self.systemd.widen(unit, self.systemd.narrow(unit))]
        if widened:  # what the run confined would stay narrow
            self.systemd.reload()
        for unit in self._restarted:
            self.systemd.restart(unit)
