# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet as a step of the transaction that applies a desired state.

The kubelet restarts with other CPU sets only on a drained node, and the controller drains it. Until then the change is pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._base.findings import coded
from ..._host.host import Host
from ..._state.diffs import diffs
from ..._state.step import LiveStep
from . import drop_in
from .pending import sentence

if TYPE_CHECKING:
    from ..._base.documents import KubeletLive


class Kubelet(LiveStep):
    """``wanted`` is what a desired state has as ``live.kubelet``, None on a host without a kubelet, and with ``present`` false, where the
    drop-in is to be removed. ``wait``: see :class:`_features.feature.Choices`."""

    title = "kubelet settings"
    key = "kubelet"

    def __init__(self, host: Host, wanted: KubeletLive | None, present: bool, wait: int | None = None) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.wanted = wanted
        self.present = present
        self.wait = wait
        self.change: drop_in.Change | None = None
        self._applied = False

    @property
    def changed(self) -> bool:
        return bool(self.wait) and self.change is not None and self.change.needed

    @property
    def held(self) -> bool:
        return self.wait == 0 and bool(self.pending())

    def look(self, check: bool) -> None:
        if self.present and not self.wanted:
            return
        path = self.wanted["path"] if self.wanted else next(iter(drop_in.installed(self.host)), None)
        if path is not None:
            self.change = drop_in.look(self.host, path, self.wanted["content"] if self.wanted else None)
            waits = self.wait is None and self.change.needed
            self.remarks = coded("NPU_KUBELET_PENDING", [sentence(self.change)] if waits else [])

    def run(self) -> None:
        if self.change and self.wait and self.change.needed:
            drop_in.apply(self.host, self.change, self.wait)
            self._applied = True

    def undo(self) -> None:
        """Restart the kubelet with the drop-ins of before. A change that failed has been taken back already."""
        if self._applied and self.change and self.wait:
            drop_in.apply(self.host, drop_in.back(self.host, self.change), self.wait)

    def pending(self) -> list[str]:
        return self.change.differences if self.change and not self.wait else []

    def result(self) -> dict[str, Any]:
        """Return ``{path, pending, removed}``."""
        change = self.change
        return {"path": change.path if change else None, "pending": self.pending(), "removed": change.removed if change else []}

    def lines(self) -> dict[str, list[str]]:
        return {diffs.KUBELET: self.change.differences} if self.change and self.changed else {}
