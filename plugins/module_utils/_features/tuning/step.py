# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the whole host as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import Any, Mapping

from ..._state.diffs import diffs
from ..._host.host import Host
from ..._state.step import LiveStep
from . import host_settings


class HostSettings(LiveStep):
    """Brings the host to ``{setting: value}``. One of the last run that is not wanted any more goes back to what it was at first."""

    title = "settings"
    key = "settings"

    def __init__(self, host: Host, wanted: Mapping[str, Any]) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.wanted = wanted
        self.steps: list[host_settings.Step] = []

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    def look(self, check: bool) -> None:
        self.steps = host_settings.look(self.host, self.wanted)
        self.warnings = host_settings.missing(self.host, self.wanted)

    def run(self) -> None:
        steps, self.steps = self.steps, []
        host_settings.carry_out(self.host, steps)
        self.steps = steps

    def undo(self) -> None:
        left = host_settings.put_back(self.host, self.steps)
        if left:
            raise ValueError("; ".join(left))

    def result(self) -> list[host_settings.Step]:
        return self.steps

    def lines(self) -> dict[str, list[str]]:
        return {diffs.SETTINGS: diffs.settings(self.steps)}
