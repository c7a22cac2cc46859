# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work as a step of the transaction that applies a desired state, and of the watcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.cpulist import expand
from ..._base.findings import with_lost
from ..._host.host import Host
from ..._kernel.memory import patience
from ..._state import previous, values
from ..._users.finding import users
from . import choosing, record
from .engines import Engines
from .feature import SECTION
from .services import Groups
from .target import Target
from .work import Work

if TYPE_CHECKING:
    from ..._base.documents import AdoptLive, AppliedState


class Adopt(values.Step):
    """Confines what holds NPUs to their pools. What cannot be adopted is a warning, and no reason to fail: it runs as before."""

    def __init__(self, host: Host, work: Work) -> None:
        values.Step.__init__(self, host, work, {})
        self.work = work
        self.key = "adopt"
        self.disruptive = False
        self._before: dict[str, record.Entry] = {}

    def run(self) -> None:
        """Look again, because what grants CPUs has changed, and adopt."""
        self._before = record.entries(self.host)
        self.look(check=False)
        with patience(self.host, sum(target.moved for target in self.work.adopted)):
            values.Step.run(self)

    def undo(self) -> None:
        values.Step.undo(self)
        previous.replace(self.host, SECTION, self._before or None)


def of_state(host: Host, live: AdoptLive, state: AppliedState) -> Adopt | None:
    """Return the step of a desired state: what runs in its units follows them, and cannot get other CPUs."""
    plan = state["plan"]
    if not plan:
        return None
    expected = {entry["unit"]: set(expand(entry["cpus"])) for entry in state["expected"] if entry.get("cpus")}

    def find(engines: Engines, groups: Groups) -> list[Target]:
        return choosing.targets(host, plan, users(host, with_lost(plan)), expected, live, engines, groups, state)

    return Adopt(host, Work(find, plan, live, state))
