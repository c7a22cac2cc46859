# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts, and workqueues and threads of the driver, restored where they were before the first bind."""

from __future__ import annotations

from ..._state.diffs import diffs
from ..._state import release
from . import affinity, binding
from .places import SECTION


class Release(release.Release):
    """``report`` is one of :meth:`restored`, or None."""

    section = SECTION
    report: affinity.Report | None

    def restored(self, check: bool) -> affinity.Report:
        """Restore what the section has, or find out what that would do."""
        return binding.restore(self.host, self.outcome.recorded[self.section], check)

    def look(self) -> None:
        self._restore(check=True)

    def release(self) -> None:
        self._restore(check=False)

    def finish(self, check: bool) -> None:
        if self.report is not None and self.report.failed:
            self.outcome.failed += self.report.failed
            self.outcome.kept.add(self.section)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.INTERRUPTS: diffs.affinities(self.report.npus) if self.report else []}

    def take_back(self) -> None:
        if self.report is not None:
            affinity.put_back(self.host, self.report.rows)

    def warnings(self) -> list[str]:
        return self.report.warnings if self.report is not None else []

    def _restore(self, check: bool) -> None:
        if self.section in self.outcome.recorded:
            self.report = self.outcome.attempt(self.section, self.restored, check)
