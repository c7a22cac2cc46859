# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ..._base.cpulist import expand
from ..._base.findings import coded
from ..._state.diffs import diffs
from ..._host.host import Host
from ..._base.findings import with_lost
from ..._state.step import LiveStep
from ..._users.finding import users
from .adopting import Adoption
from .choosing import NOTHING
from .target import FAILED, REFUSED

if TYPE_CHECKING:
    from ..._base.documents import UnitSets


class Adopt(LiveStep):
    """Confines what holds NPUs to their pools.

    ``expected`` are the entries of a desired state with what units get: what runs in them cannot get other CPUs. What cannot be adopted
    is a warning, and no reason to fail: it runs as before. ``wanted``: what the desired state has of the feature (``live``).
    """

    title = "CPUs of running work"
    key = "adopt"
    disruptive = False

    def __init__(
        self,
        host: Host,
        plan: Mapping[str, Any],
        expected: Iterable[UnitSets],
        wanted: Mapping[str, Any] = NOTHING,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        LiveStep.__init__(self)
        self.state = state
        self.host = host
        self.plan = plan
        self.wanted = wanted
        self.expected = {entry["unit"]: set(expand(entry["cpus"])) for entry in expected if entry.get("cpus")}
        self.adoption: Adoption | None = None

    @property
    def changed(self) -> bool:
        return self.adoption is not None and self.adoption.changed

    def look(self, check: bool) -> None:
        self.adoption = Adoption(self.host, self.plan, users(self.host, with_lost(self.plan)), self.expected, self.wanted, self.state)
        self._warn()

    def run(self) -> None:
        """Look again, because what grants CPUs has changed, and adopt."""
        self.look(check=False)
        if self.adoption:
            self.adoption.run()
            self._warn()

    def undo(self) -> None:
        if self.adoption:
            self.adoption.undo()

    def _warn(self) -> None:
        targets = self.adoption.targets if self.adoption else []
        left = self.adoption.leaving.sentences() if self.adoption else []
        refused = [target.sentence for target in targets if target.state in (REFUSED, FAILED)]
        starts = [text for target in targets for text in target.hazards(self.host)]
        remarks = [target.remark for target in targets if target.remark]
        self.warnings = list(dict.fromkeys([*refused, *remarks, *starts, *left]))
        self.remarks = coded("NPU_VARIABLE_KEPT", [text for target in targets if target.has_drop_in(self.host) for text in target.kept])

    def result(self) -> dict[str, Any]:
        """Return ``{changed, users}``; a user is what :meth:`Target.row` returns."""
        return {"changed": self.changed, "users": [target.row() for target in self.adoption.targets] if self.adoption else []}

    def lines(self) -> dict[str, list[str]]:
        if not self.adoption:
            return {diffs.WORK: []}
        later = ["~ %s: CPUs %s at its next start" % (unit, sets["cpus"]) for unit, (sets, _variables) in self.adoption.refreshed.items()]
        return {diffs.WORK: diffs.work(self.result()["users"]) + later + self.adoption.leaving.lines()[diffs.WORK]}
