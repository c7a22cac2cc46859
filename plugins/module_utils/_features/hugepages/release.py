# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages that nodes had before the first bind, given back as far as nothing uses them."""

from __future__ import annotations

from ..._state.diffs import diffs
from ..._host.host import Host
from ..._kernel.hugepages import pages
from ..._state import release
from . import setting
from .places import SECTION


class Release(release.Release):
    """``report`` are the goals that were, or would be, reached."""

    report: list[setting.Goal]

    def __init__(self, host: Host, outcome: release.Outcome, options: release.Options) -> None:
        super().__init__(host, outcome, options)
        self.report = []
        self._left: set[tuple[int, int]] = set()

    @property
    def changed(self) -> bool:
        return any(goal.changes for goal in self.report)

    def look(self) -> None:
        """Find what differs from the record. That pages in use stay is known at once."""
        for size, node, count in setting.members(self.outcome.recorded.get(SECTION, {})):
            now = pages(self.host, size, node)
            if now:
                self.report.append(setting.goal_of(self.host, size, node, count, now))
        self.report = setting.lowering_first(self.report)
        for goal in self.report:
            if goal.after > goal.wanted:
                self._leave(goal)

    def release(self) -> None:
        self.report = setting.change(self.host, self.report)

    def finish(self, check: bool) -> None:
        if check:
            self.report = setting.predicted(self.host, self.report)
        for goal in self.report:
            if (goal.size, goal.node) not in self._left:
                self._leave(goal)
        self.report = [goal for goal in self.report if goal.changes]

    def _leave(self, goal: setting.Goal) -> None:
        """Keep the record where a node does not get what it had."""
        for sentence in setting.unreached(goal, "the first bind"):
            self._left.add((goal.size, goal.node))
            self.outcome.leave(SECTION, sentence)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SETTINGS: [goal.line for goal in self.report if goal.changes]}

    def take_back(self) -> None:
        left = setting.take_back(self.host, self.report)
        if left:
            raise ValueError("; ".join(left))
