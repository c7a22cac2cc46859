# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's own recovery of device share after a reboot, and the one order of calls that keeps its file whole."""

from __future__ import annotations

from ..._host.host import Host
from .calls import Change, Report, State, damages, parse_recovery_file, plan_changes, recorded_state, recovery_limits
from .tool import Cards, Refusal, ShareTool

FILE = "/etc/device_share.cfg"
FILES = (FILE, FILE + ".bak")
"""What npu-smi writes, some of it also when it is only asked."""


class Recovery:
    """The recovery switch of a host, and what a run does about it.

    ``wanted`` is what the user wants of it, None to leave it as it is; ``on`` what it is, None when it is not known. ``report`` gets
    what is to be said of it, as failure of card None.
    """

    def __init__(self, host: Host, tool: ShareTool, cards: Cards, report: Report, wanted: bool | None) -> None:
        self._host = host
        self._tool = tool
        self._cards = cards
        self._report = report
        self._recorded: State | None = None
        self.on: bool | None = None
        self.wanted = wanted
        self._read_file()
        if wanted is None:
            return
        try:
            self.on = tool.recovering()
            report.recover = (self.on, wanted)
        except Refusal as error:
            self.wanted = None
            if wanted or error.kind != "unsupported":
                report.failed[None] = "the driver's recovery switch cannot be read: %s" % error

    def _read_file(self) -> None:
        """Read the recorded settings; without a file, or with one that only root may read, there are none that are known."""
        text = self._host.read(FILE)
        if text is None:
            return
        try:
            content = parse_recovery_file(text)
        except ValueError as error:
            self._recorded = None
            self._report.warnings.append("%s; the driver restores nothing from it. Remove it, and set recover to on again" % error)
            return
        self.on = content["recover"]
        self._recorded = recorded_state(content["lines"], self._cards.chips)

    def plan(self) -> list[Change]:
        """Return the run's changes, such that recording them leaves the driver's file whole.

        Where it would not, the switch goes off and on, which empties the file, and then every card that is to be on is set once.
        """
        report, recorded = self._report, self._recorded or {}
        changes = plan_changes(report.before, report.wanted, self._cards.by_chip, bool(self.on), self.wanted, recorded)
        if not self.on or self.wanted is False or not damages(changes, report.before, recorded):
            return changes
        if self.wanted is None:
            report.warnings.append("recording this change will damage %s: set recover to on, which records it again, or to off" % FILE)
            return changes
        every = dict(report.wanted)
        for card, state in recorded.items():
            on = [chip for chip, enabled in state.items() if enabled and self._is_on(card, chip)]
            if on and card not in every:
                every[card] = dict.fromkeys(on, True)
        return [Change(None, None, False)] + plan_changes(report.before, every, self._cards.by_chip, False, True, {})

    def _is_on(self, card: int, chip: int) -> bool:
        """Whether a recorded chip is on; queries a card whose state is unknown. One that is off, or silent, is not recorded again."""
        if card not in self._report.before:
            try:
                self._report.before[card] = self._tool.share(card)
            except Refusal as error:
                self._report.warnings.append("card %d will not be recorded for the driver's recovery again: %s" % (card, error))
                self._report.before[card] = {}
        return self._report.before[card].get(chip) is True

    def verify(self, refused: Refusal | None) -> None:
        """Read switch and file again after the changes; ``refused`` is what the tool said against the switch, or None."""
        report = self._report
        if self.wanted is None:
            return
        try:
            after = self._tool.recovering()
        except Refusal as error:
            after, refused = None, error
        report.recover = (self.on, after)
        if after is not self.wanted:
            reason = refused or "npu-smi reported no error"
            report.failed[None] = "the driver's recovery could not be switched %s: %s" % ("on" if self.wanted else "off", reason)
        on = sorted(card for card, chips in report.wanted.items() if any(chips.values()))
        if not after or not on:
            return
        report.warnings.extend(recovery_limits(on, self._cards.a3))
        self._read_file()
        missing = [] if self._recorded is None else [card for card in on if self._recorded.get(card) != report.after.get(card)]
        if missing:
            report.warnings.append("the driver did not record cards %s in %s" % (", ".join(map(str, missing)), FILE))
