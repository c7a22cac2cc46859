# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages that nodes had before the first bind, given back as far as nothing uses them."""

from __future__ import annotations

from ..._state.diffs import diffs
from ..._host.host import Host
from ..._kernel.hugepages import pages, size_text
from ..._state import release
from . import setting
from .feature import SECTION


class Release(release.Release):
    """``report`` are the goals that were, or would be, reached."""

    report: list[setting.Goal]

    def __init__(self, host: Host, outcome: release.Outcome, options: release.Options) -> None:
        super().__init__(host, outcome, options)
        self.report = []

    @property
    def changed(self) -> bool:
        return bool(self.report)

    def look(self) -> None:
        recorded = self.outcome.recorded.get(SECTION, {})
        for size, node, count in setting.members(recorded):
            now = pages(self.host, size, node)
            found = setting.differing(self.host, size, node, count, now) if now else []
            self.report += found
            kept = found[0].after if found else now.pool if now else 0
            if kept > count:
                self.outcome.leave(
                    SECTION,
                    "node %d keeps %d huge pages of %s, because processes use them, and had %d before the first bind; stop these "
                    "processes and run again" % (node, kept, size_text(size), count),
                )

    def release(self) -> None:
        self.report = self.outcome.attempt(SECTION, setting.change, self.host, self.report) or []

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SETTINGS: [goal.line for goal in self.report]}

    def take_back(self) -> None:
        left = setting.take_back(self.host, self.report)
        if left:
            raise ValueError("; ".join(left))
