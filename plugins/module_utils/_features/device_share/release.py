# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device share put back to what it was on each chip before the first bind."""

from __future__ import annotations

from ..._host import CommandError
from ..._state import release
from . import switching
from .tool import Refusal, ShareTool


class Release(release.Release):
    """``report`` is one of :func:`device_share.switching.restore`, or None."""

    report: switching.Report | None
    begun: switching.Report | None = None

    def finish(self, check: bool) -> None:
        section = self.outcome.recorded.get(switching.SECTION)
        if section is None:
            return
        if not self.options.device_share:
            self.outcome.kept.add(switching.SECTION)
            return
        try:
            tool = ShareTool(self.host, self.options.npu_smi)
            cards = tool.cards()
            self.begun = switching.Report()
            self.report = switching.restore(self.host, tool, cards, section, check, self.begun)
        except (CommandError, OSError, Refusal, ValueError) as error:
            self.outcome.failed.append("device share could not be put back: %s" % error)
            self.outcome.kept.add(switching.SECTION)
        if self.report is not None and self.report.failed:
            self.outcome.kept.add(switching.SECTION)

    def take_back(self) -> None:
        if self.begun is None:
            return
        try:
            tool = ShareTool(self.host, self.options.npu_smi)
            switching.take_back(self.host, tool, tool.cards(), self.begun)
        except Refusal as error:
            raise ValueError("device share could not be switched on again: %s" % error)
