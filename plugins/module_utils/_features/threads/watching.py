# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the watcher that places threads: those of processes that start or open a device, and those that get a name later."""

from __future__ import annotations

from ..._host.host import Host
from ..._state.lock import changing
from ..._state.plan_file import PATH as PLAN
from ..watching import PROGRAM, Births, Watching
from .feature import SETTINGS
from .placing import Report, moves, place, settings_of
from .tasks import groups_of, plan_in_force


class Threads(Watching):
    """Places what the installed settings name."""

    def __init__(self, host: Host) -> None:
        Watching.__init__(self, host)
        self._units: frozenset[str] = frozenset()
        self._pids: set[int] = set()

    def look(self) -> bool:
        self._pids = self._place(None)
        return self.host.exists(SETTINGS)

    def concerns(self, group: str) -> bool:
        return bool(self._units) and not self._units.isdisjoint(group.replace("\n", "/").split("/"))

    def knows(self, pid: int) -> bool:
        return pid in self._pids

    def born(self, births: Births) -> bool:
        self._pids |= self._place(births)
        return False

    def _place(self, births: Births | None) -> set[int]:
        """Place threads, and return their processes; none where it is not known what is to be placed."""
        try:
            report = self._report(births, check=True)
            if report.changed or report.failed:
                with changing(self.host, PROGRAM):  # what was waited for may have changed everything
                    report = self._report(births, check=False)
        except (OSError, ValueError) as error:
            self._say(["No thread is placed: %s" % error], births is None)
            return set()
        if report.changed:
            self._log(moves(report.processes), "threads")
        self._say(report.warnings + report.failed, births is None)
        return {process.pid for process in report.selected}

    def _report(self, births: Births | None, check: bool) -> Report:
        if not (self.host.exists(SETTINGS) and self.host.exists(PLAN)):
            self._units = frozenset()
            return Report()
        plan, (processes, patterns) = plan_in_force(self.host), settings_of(self.host)
        self._units = frozenset(group.unit for group in groups_of(plan, processes) if group.unit)
        return place(self.host, plan, processes, patterns, check, among=births)
