# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads that role threads placed, let go: newer kernels keep what was set when a cpuset widens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ..._state.diffs import diffs
from ..._state import release
from . import placing
from .places import SETTINGS
from .tasks import plan_in_force

if TYPE_CHECKING:
    from ..._base.documents import Plan

Placed = Tuple["Plan", List[Dict[str, Any]], Dict[str, Any]]
"""The plan, the processes and the patterns by which threads were placed."""


class Release(release.Release):
    """``report`` is one of :func:`threads.placing.place`, or None."""

    report: placing.Report | None
    placed: Placed | None = None

    def look(self) -> None:
        if not self.host.exists(SETTINGS):
            return
        try:
            self.placed = (plan_in_force(self.host),) + placing.settings_of(self.host)
            self.report = self._place(self.placed, check=True)
        except (OSError, ValueError) as error:
            self.placed = None
            self.outcome.warnings.append("threads stay where they were placed until their processes end: %s" % error)

    def release(self) -> None:
        if self.placed is not None:
            self.report = self.outcome.attempt(None, self._place, self.placed)
            self.outcome.warnings += self.report.failed if self.report else []

    def lines(self) -> dict[str, list[str]]:
        return {diffs.THREADS: diffs.threads(self.report.processes) if self.report else []}

    def take_back(self) -> None:
        if self.report is not None:
            placing.put_back(self.host, self.report)

    def _place(self, placed: Placed, check: bool = False) -> placing.Report:
        plan, processes, patterns = placed
        return placing.place(self.host, plan, processes, patterns, check, release=True)
