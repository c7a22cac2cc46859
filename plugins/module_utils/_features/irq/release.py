# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts, workqueues and threads of the driver restored where they were before the first bind."""

from __future__ import annotations

from ..._state.diffs import diffs
from ..._state import release
from . import affinity, binding
from .places import SECTION


class Release(release.Release):
    """``report`` is one of :func:`irq.binding.restore`, or None."""

    report: affinity.Report | None

    def look(self) -> None:
        self._restore(check=True)

    def release(self) -> None:
        self._restore(check=False)

    def finish(self, check: bool) -> None:
        if self.report is not None and self.report.failed:
            self.outcome.failed += self.report.failed
            self.outcome.kept.add(SECTION)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.INTERRUPTS: diffs.affinities(self.report.npus) if self.report else []}

    def take_back(self) -> None:
        if self.report is not None:
            affinity.put_back(self.host, self.report.rows)

    def _restore(self, check: bool) -> None:
        if SECTION in self.outcome.recorded:
            self.report = self.outcome.attempt(SECTION, binding.restore, self.host, self.outcome.recorded[SECTION], check)
