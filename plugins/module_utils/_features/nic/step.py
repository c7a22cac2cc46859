# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues of network functions as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.findings import coded
from ..._host.host import Host
from ..._state import previous
from ..._state.diffs import diffs
from ..._state.lock import changing
from ..._state.step import LiveStep
from ..irq.affinity import Report
from ..irq.rebinds import forget
from . import queues
from .places import NEAR, SECTION

if TYPE_CHECKING:
    from ..._base.documents import NicLive


class NetworkInterrupts(LiveStep):
    """Places the queues when all else has succeeded; what is not wanted any more gets what it had, and a report places nothing.

    The files stay where something cannot be placed, so the units that they describe try again.
    """

    def __init__(self, host: Host, wanted: NicLive, tolerant: bool = False) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.told = queues.wanted_of(wanted)
        self.wanted = self.told if wanted["mode"] == NEAR else {}
        self.tolerant = tolerant
        self.placed = queues.Placed([], [], [], [])
        self.left = Report([])

    @property
    def changed(self) -> bool:
        return self.placed.changed or self.left.changed

    def look(self, check: bool) -> None:
        self.left = self._restored(check=True)
        self._take(queues.bind(self.host, self.wanted, check=True))
        if check:
            self._require_all()

    def _restored(self, check: bool) -> Report:
        """Return what becomes of what is recorded and not wanted."""
        return queues.restore(self.host, self._recorded(is_wanted=False), check)

    def _recorded(self, is_wanted: bool) -> dict[str, dict[str, str]]:
        recorded = queues.recorded(previous.recorded(self.host))
        return {pci: places for pci, places in recorded.items() if (pci in self.wanted) is is_wanted}

    def _take(self, placed: queues.Placed) -> None:
        self.placed = placed
        self.remarks = coded("NPU_NIC_UNPLACED", placed.unchangeable + queues.remarks(self.host, self.told))
        self.warnings = self.left.warnings + placed.warnings + (self.left.failed + placed.failed if self.tolerant else [])

    def prepare(self) -> None:
        if self.placed.changed:
            queues.record(self.host, self.placed.rows)

    def run(self) -> None:
        """Nothing: :meth:`complete` places."""

    def undo(self) -> None:
        """Nothing: no interrupt was touched."""

    def complete(self) -> None:
        with changing(self.host, "placing network interrupts"):
            for pci in [*self.wanted, *(row.pci for row in self.left.rows)]:
                forget(self.host, pci)
            if self.left.rows:
                self.left = self._restored(check=False)
                kept = self._recorded(is_wanted=True)
                if not self.left.failed:
                    previous.replace(self.host, SECTION, {"functions": kept} if kept else None)
            is_placed = not (self.placed.changed or self.placed.failed)
            self._take(self.placed if is_placed else queues.bind(self.host, self.wanted, tolerant=self.tolerant))
        self._require_all()

    def _require_all(self) -> None:
        failed = self.left.failed + self.placed.failed
        if failed and not self.tolerant:
            raise ValueError("not all network interrupts could be placed: " + "; ".join(failed))

    def result(self) -> None:
        return None

    def lines(self) -> dict[str, list[str]]:
        return {diffs.INTERRUPTS: diffs.affinities(self.left.npus + self.placed.entries())}
