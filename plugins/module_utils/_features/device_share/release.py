# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device share restored to what it was on each chip before the first bind."""

from __future__ import annotations

from typing import Any

from ..._host.host import CommandError
from ..._state.diffs import diffs
from ..._state import release
from . import switching
from .calls import Report
from .places import SECTION
from .step import result_of
from .tool import Refusal, ShareTool


class Release(release.Release):
    """``report`` is one of :func:`device_share.switching.restore`, or None."""

    key = SECTION
    report: Report | None
    begun: Report | None = None

    def finish(self, check: bool) -> None:
        section = self.outcome.recorded.get(SECTION)
        if section is None:
            return
        if not self.options.device_share:
            self.outcome.kept.add(SECTION)
            return
        try:
            tool = ShareTool(self.host, self.options.npu_smi)
            cards = tool.cards()
            self.begun = Report()
            self.report = switching.restore(self.host, tool, cards, section, check, self.begun)
        except (CommandError, OSError, Refusal, ValueError) as error:
            self.outcome.failed.append("device share could not be restored: %s" % error)
            self.outcome.kept.add(SECTION)
        if self.report is not None and self.report.failed:
            self.outcome.kept.add(SECTION)

    def lines(self) -> dict[str, list[str]]:
        if self.report is None:
            return {}
        restored = ["~ %s: as before the first bind" % path for path in self.report.restored]
        return {diffs.SHARE: diffs.device_share(diffs.chips_of(self.report)) + restored}

    def _failed(self, is_ignored: bool) -> list[str]:
        """Return sentences on cards that could not be restored: on those that may stay busy, or on the others."""
        report = self.report or Report()
        ignored = report.busy if self.options.ignore_busy else []
        return diffs.card_sentences({card: text for card, text in report.failed.items() if (card in ignored) is is_ignored})

    def failures(self) -> list[str]:
        return self._failed(is_ignored=False)

    def warnings(self) -> list[str]:
        return self._failed(is_ignored=True) + (self.report.warnings if self.report else [])

    def result(self) -> dict[str, Any]:
        return result_of(self.report or Report())

    def take_back(self) -> None:
        if self.begun is None:
            return
        try:
            tool = ShareTool(self.host, self.options.npu_smi)
            switching.take_back(self.host, tool, tool.cards(), self.begun)
        except Refusal as error:
            raise ValueError("device share could not be switched on again: %s" % error)
