# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages of nodes as a step of the transaction that applies a desired state."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Sequence

from ..._base.findings import coded
from ..._state.diffs import diffs
from ..._host.host import Host
from ..._kernel.hugepages import path_of
from ..._state.files import FileState
from ..._state.step import LiveStep
from . import setting
from .places import GRANTED
from .shortage import on_command_line, shortages

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive


class HugePages(LiveStep):
    """Gives nodes the huge pages that are wanted, as far as the kernel grants them. Each shortage is a remark."""

    title = "huge pages"

    def __init__(self, host: Host, wanted: HugePagesLive) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.wanted = wanted
        self.goals: list[setting.Goal] = []
        self.granted = FileState.of(host, GRANTED)

    @property
    def changed(self) -> bool:
        return any(goal.changes for goal in self.goals)

    def look(self, check: bool) -> None:
        self.goals = setting.goals(self.host, self.wanted)
        for path in [path_of(goal.size, goal.node) for goal in self.goals if goal.changes]:
            if not os.access(self.host.path(path), os.W_OK):
                raise ValueError("%s cannot be written; run as root (become: true), and not where /sys is read-only" % path)
        if check:
            self.goals = setting.predicted(self.host, self.goals)
        self._remark(self.goals)

    def run(self) -> None:
        todo = self.goals
        try:
            done = setting.carry_out(self.host, todo)
        finally:
            self.goals = [setting.found(self.host, goal) for goal in todo]
        refused = [goal.refused for goal in done if goal.refused]
        if refused:
            raise ValueError("; ".join(refused))
        self._remark(())

    def finish(self) -> None:
        setting.forget_given_back(self.host, self.wanted)

    def undo(self) -> None:
        left = setting.take_back(self.host, self.goals)
        with contextlib.suppress(OSError):  # it is as full as it was, and the next bind tries again
            self.granted.put(self.host, GRANTED)
        if left:
            raise ValueError("; ".join(left))

    def result(self) -> None:
        return None

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SETTINGS: [goal.line for goal in self.goals if goal.changes]}

    def _remark(self, planned: Sequence[setting.Goal]) -> None:
        """Say what is short for good. What this run is about to set (``planned``) is not."""
        ahead = {(goal.size, goal.node) for goal in planned if goal.changes}
        found = [short for short in shortages(self.host, self.wanted) if (short.size, short.node) not in ahead or short.tried]
        self.remarks = coded("NPU_HUGEPAGES_SHORT", [short.sentence for short in found])
        self.remarks += coded("NPU_HUGEPAGES_CHANGED", setting.unsettled(self.host, self.wanted, self.goals))
        self.remarks += coded("NPU_KERNEL_CONTRADICTS", on_command_line(self.host, self.wanted))
