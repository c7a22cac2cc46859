# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues of network functions restored where they were before the first bind."""

from __future__ import annotations

from ..._host.host import Host
from ..._state import release
from ..._state.diffs import diffs
from ..irq.affinity import Report, put_back
from ..irq.rebinds import forget
from .places import SECTION
from .queues import recorded, restore


class Release(release.Release):
    """``report`` has a row for each recorded function, or is None."""

    report: Report | None

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
            put_back(self.host, self.report.rows)

    def warnings(self) -> list[str]:
        return self.report.warnings if self.report is not None else []

    def _restore(self, check: bool) -> None:
        if SECTION in self.outcome.recorded:
            self.report = self.outcome.attempt(SECTION, _restored, self.host, recorded(self.outcome.recorded), check)


def _restored(host: Host, functions: dict[str, dict[str, str]], check: bool) -> Report:
    if not check:
        for pci in functions:
            forget(host, pci)
    return restore(host, functions, check)
