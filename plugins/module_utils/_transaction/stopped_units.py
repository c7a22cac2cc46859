# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of others that a bind stops, such as irqbalance, and that a later run starts again."""

from __future__ import annotations

import functools
import posixpath
from typing import TYPE_CHECKING, Callable, Tuple

from .._host.host import Host
from .._state import previous
from .._state.files import FileState
from .._state.step import Outcome
from .._state.systemd import UNIT_SUFFIX, Systemd, enable_links
from .request import Report, Request

if TYPE_CHECKING:
    from .._state.files import FileRecord
    from .._state.sections import UnitRecord

Standing = Tuple[bool, bool]
"""Whether a unit runs, and whether links enable it."""


def standing(host: Host, systemd: Systemd, unit: str) -> Standing:
    return host.live and bool(systemd.active([unit])), bool(systemd.links(unit))


def enables(values: FileRecord) -> str:
    """Return the unit to which a recorded file is a link, '' where it is none."""
    return posixpath.basename(values.get("link") or "")


def undo_start(host: Host, systemd: Systemd, unit: str, text: str | None, before: Standing) -> None:
    """Stop and disable a unit of others that was started and enabled again, as far as it was neither before."""
    was_running, was_enabled = before
    running, enabled = standing(host, systemd, unit)
    if running and not was_running:
        systemd.stop([unit])
    if enabled and not was_enabled:
        systemd.disable(unit, text)
        if host.live:
            systemd.reload()


def runs_or_would(host: Host, systemd: Systemd, unit: str) -> str | None:
    """Return how a unit runs, or None when it does not: ``active`` now, or ``enabled``, so it would at the next boot."""
    if host.live and systemd.active([unit]):
        return "active"
    return "enabled" if systemd.links(unit) else None


class StoppedUnits:
    """The units that a request stops, and those that it releases because an earlier run stopped them."""

    def __init__(self, systemd: Systemd, request: Request, report: Report) -> None:
        self.host = systemd.host
        self.systemd = systemd
        self.request = request
        self._restored: list[tuple[str, Standing]] = []
        self._stopped: list[tuple[str, UnitRecord]] = []
        stopped = previous.recorded(self.host) if request.released else {}
        masked = [unit for unit in request.released if unit in stopped and systemd.masked(unit)]
        report.warnings += ["%s was stopped by an earlier bind and has been masked since: it stays stopped" % unit for unit in masked]
        self._released = {unit: stopped[unit] for unit in request.released if unit in stopped and unit not in masked}

    def look(self) -> list[str]:
        """Return what is to do, in words."""
        stops = ["stop %s" % unit for unit in self.request.stopped if runs_or_would(self.host, self.systemd, unit)]
        return stops + ["restore %s" % unit for unit in self._released]

    def run(self) -> None:
        for unit in self.request.stopped:
            self._stop(unit)
        for unit, before in self._released.items():
            self._restored.append((unit, standing(self.host, self.systemd, unit)))
            self._start_again(unit, before)
            previous.replace(self.host, unit, None)

    def _stop(self, unit: str) -> None:
        running = runs_or_would(self.host, self.systemd, unit)
        if not running:
            return
        links = self.systemd.links(unit)
        before: UnitRecord = {} if self.systemd.enabled(unit, self.request.text_of(self.systemd, unit)) else {"enabled": False}
        before["running"] = running == "active" or not self.host.live
        if unit not in previous.recorded(self.host):
            previous.record(self.host, unit, before)
        self._stopped.append((unit, before))
        previous.record_files(self.host, {path: FileState.of(self.host, path) for path in links})
        if self.host.live:
            self.systemd.stop([unit])
        self.systemd.disable(unit, self.request.text_of(self.systemd, unit))
        if self.host.live and links:
            self.systemd.reload()

    def _start_again(self, unit: str, before: UnitRecord) -> None:
        text, recorded = self.request.text_of(self.systemd, unit), previous.recorded(self.host)
        for path, values in recorded.get("files", {}).items():
            if enables(values) == unit and not self.host.exists(path):
                FileState.from_record(values).write(self.host, path)
        if text is not None and before.get("enabled", True) and (self.host.live or not self.systemd.enabled(unit, text)):
            self.systemd.enable(unit, text)
            if self.host.live:
                self.systemd.reload()
        if text is not None and before.get("running") and self.host.live:
            self.systemd.start([unit])

    def undo_steps(self) -> list[Callable[[], None]]:
        text_of = functools.partial(self.request.text_of, self.systemd)
        return [
            *(functools.partial(undo_start, self.host, self.systemd, unit, text_of(unit), before) for unit, before in self._restored),
            *(functools.partial(self._start_again, unit, before) for unit, before in self._stopped),
        ]


class StoppedBefore:
    """The units that earlier binds stopped, as the record of an unbind has them: it enables and starts them again."""

    def __init__(self, systemd: Systemd, outcome: Outcome) -> None:
        self.host = systemd.host
        self.systemd = systemd
        self.outcome = outcome
        self._enabled: list[tuple[str, str]] = []
        self._started: list[str] = []
        self._before: dict[str, Standing] = {}

    def look(self, request: Request) -> None:
        """Find the units to enable and to start, when the files of a request are written."""
        for unit, values in sorted(self.outcome.recorded.items()):
            if not UNIT_SUFFIX.search(unit):
                continue
            text = self.systemd.text(unit)
            if self.systemd.masked(unit):
                advice = "systemctl unmask %s, and unbind again" % unit
                self.outcome.leave(unit, "%s was stopped by a bind and has been masked since, and is not started: %s" % (unit, advice))
                continue
            if text is None:
                self.outcome.warnings.append("%s was stopped by a bind and is not installed any more" % unit)
                continue
            # On a running machine always: what stands for System V's run levels is not a link of systemd's.
            missing = [link for link in enable_links(unit, text) if not self.host.exists(link) and link not in request.files]
            if values.get("enabled", True) and (missing or self.host.live):
                self._enabled.append((unit, text))
            if self.host.live and values.get("running") and not self.systemd.active([unit]):
                self._started.append(unit)

    @property
    def actions(self) -> list[str]:
        return ["enable %s" % unit for unit, _text in self._enabled] + ["start %s" % unit for unit in self._started]

    def leave_disabled(self) -> None:
        """Leave the links of the units to a later run."""
        self.outcome.kept |= {unit for unit, _text in self._enabled}
        self._enabled = []

    def run(self) -> None:
        """Enable and start them, one after the other: one that does not start holds up nothing else."""
        units = [unit for unit, _text in self._enabled] + self._started
        self._before = {unit: standing(self.host, self.systemd, unit) for unit in units}
        for unit, text in self._enabled:
            self.outcome.attempt(unit, self.systemd.enable, unit, text)
        if self.host.live and self._enabled:
            self.outcome.attempt(None, self.systemd.reload)
        for unit in self._started:
            self.outcome.attempt(unit, self.systemd.start, [unit])

    def undo_steps(self) -> list[Callable[[], None]]:
        return [
            functools.partial(undo_start, self.host, self.systemd, unit, self.systemd.text(unit), before)
            for unit, before in self._before.items()
        ]
