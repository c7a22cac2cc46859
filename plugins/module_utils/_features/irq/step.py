# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts, workqueues and kernel threads of drivers as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import Any, Mapping

from ..._base.findings import coded
from ..._state.diffs import diffs
from ..._host.host import Host
from ..._kernel.interrupts import KINDS
from ..._state import previous
from ..._state.lock import changing
from ..._state.step import LiveStep
from . import binding
from .affinity import Report, grouped
from .places import SECTION
from .rebinds import forget


class Interrupts(LiveStep):
    """Binds what a plan says, when all else has succeeded.

    The files stay where something cannot be bound, so the units that they describe try again. ``tolerant``: that is a warning then,
    and no failure.
    """

    title = ""  # a failure of the transaction comes before any is touched
    key = "interrupts"

    def __init__(self, host: Host, plan: Mapping[str, Any], tolerant: bool = False) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.plan = plan
        self.tolerant = tolerant
        self.report = Report([])

    @property
    def changed(self) -> bool:
        return self.report.changed

    def look(self, check: bool) -> None:
        self._take(binding.bind(self.host, self.plan, check=True))
        if check:
            self._require_all()

    def _take(self, report: Report) -> None:
        self.report = report
        self.remarks = coded("NPU_IRQ_UNPLACED", report.unchangeable)
        self.warnings = report.warnings + (report.failed if self.tolerant else [])

    def prepare(self) -> None:
        if self.changed:
            previous.record(self.host, SECTION, binding.previous(self.host, self.plan))

    def run(self) -> None:
        """Nothing: :meth:`complete` binds."""

    def undo(self) -> None:
        """Nothing: no interrupt was touched."""

    def complete(self) -> None:
        with changing(self.host, "binding interrupts"):
            forget(self.host)
            if self.changed or self.report.unchangeable or self.report.failed:
                self._take(binding.bind(self.host, self.plan, tolerant=self.tolerant))
        self._require_all()

    def _require_all(self) -> None:
        if self.report.failed and not self.tolerant:
            raise ValueError("not everything could be bound: " + "; ".join(self.report.failed))

    def unsettled(self) -> list[str]:
        """Return a line for each interrupt that has yet to fire, which a bind counts from."""
        states = [(npu, entry) for npu in self.report.npus for kind in KINDS for entry in npu[kind] if entry["state"] == "pending"]
        return ["%s of %s follows at its next interrupt" % (entry["name"], npu["pci"]) for npu, entry in states]

    def result(self) -> dict[str, Any]:
        """Return ``{npus, unchangeable, failures}``."""
        report = self.report
        return {
            "npus": [dict(npu, **{kind: grouped(npu[kind]) for kind in KINDS}) for npu in report.npus],
            "unchangeable": report.unchangeable,
            "failures": report.failed,
        }

    def lines(self) -> dict[str, list[str]]:
        return {diffs.INTERRUPTS: diffs.affinities(self.report.npus)}
