# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device share as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._host.host import CommandError, Host
from ..._state.diffs import diffs
from ..._smi.driver import installed_version
from ..._state.step import LiveStep
from . import switching
from .calls import OLDEST_DRIVER, Report
from .switching import Choice
from .tool import Cards, Refusal, ShareTool

if TYPE_CHECKING:
    from ..._base.documents import DeviceShareLive


class DeviceShare(LiveStep):
    """Brings every chip to the wanted state and reads it back.

    ``wanted`` is what a desired state has as ``live.device_share``. A card that a container holds fails the step, or with ``ignore_busy``
    waits for the next run.
    """

    title = "device share settings"
    key = "device_share"

    def __init__(self, host: Host, wanted: DeviceShareLive, npu_smi: str | None = None) -> None:
        LiveStep.__init__(self)
        self.host = Host(host.root, wanted.get("timeout", 60))
        self.wanted = wanted
        self.npu_smi = npu_smi
        self.report = Report()
        self._cards: Cards | None = None
        self._begun = False

    @property
    def changed(self) -> bool:
        return self.report.changed

    def look(self, check: bool) -> None:
        try:
            tool = ShareTool(self.host, self.npu_smi)
            minimum = self.wanted.get("min_driver", OLDEST_DRIVER)
            if self.wanted["enabled"] and minimum:
                switching.require_driver(self.host, minimum, installed_version(self.host) or tool.version())
            self._cards = tool.cards()
            choice = Choice(self.wanted["enabled"], self.wanted["npus"], self.wanted["only_ours"])
            self.report = switching.compare(self.host, tool, self._cards, choice, check)
            switching.apply(self.host, tool, self._cards, self.report, check=True)
        except Refusal as error:
            raise ValueError("device share: %s" % error)
        self._judge()

    def run(self) -> None:
        if not self.changed or self._cards is None:
            return
        self._begun = True
        try:
            switching.apply(self.host, ShareTool(self.host, self.npu_smi), self._cards, self.report, check=False)
        except Refusal as error:
            raise ValueError("device share: %s" % error)
        self._judge()

    def undo(self) -> None:
        if not self._begun or self._cards is None:
            return
        try:
            switching.take_back(self.host, ShareTool(self.host, self.npu_smi), self._cards, self.report)
        except (CommandError, Refusal, ValueError) as error:
            raise ValueError("device share could not be restored: %s" % error)

    def _judge(self) -> None:
        """Raise ``ValueError`` where a card is not as wanted, except for cards that may wait for the next run."""
        report = self.report
        waiting: dict[int, str] = {
            card: text for card, text in report.failed.items() if self.wanted.get("ignore_busy") and card in report.busy
        }
        failed = diffs.card_sentences({card: text for card, text in report.failed.items() if card not in waiting})
        if failed:
            raise ValueError("device share differs from the settings: " + "; ".join(failed))
        self.warnings = list(dict.fromkeys(report.warnings + diffs.card_sentences(waiting)))

    def result(self) -> dict[str, Any]:
        """Return ``{chips, busy, failures}``."""
        return result_of(self.report)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SHARE: diffs.device_share(diffs.chips_of(self.report))}


def result_of(report: Report) -> dict[str, Any]:
    return {
        "chips": diffs.chips_of(report),
        "busy": report.busy,
        "failures": diffs.card_sentences(report.failed),
    }
