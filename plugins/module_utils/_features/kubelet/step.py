# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's drop-in as a step of the transactions that apply a desired state and restore features.

The kubelet restarts with other CPU sets only on a drained node, and the controller drains it. Until then the change is pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._base.findings import coded
from ..._host.host import Host
from ..._state import diffs, step
from ..feature import Comparing
from . import drop_in
from .feature import SECTION

if TYPE_CHECKING:
    from ..._base.documents import KubeletLive


class Kubelet(step.LiveStep):
    """``wanted`` is what a desired state has as ``live.kubelet``, None on a host without a kubelet, and with ``present`` false, where the
    drop-in is to be removed. ``wait``: see :class:`_features.feature.Choices`."""

    title = "kubelet settings"
    key = "kubelet"

    def __init__(self, host: Host, wanted: KubeletLive | None, present: bool, wait: int | None = None) -> None:
        step.LiveStep.__init__(self)
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
        self.change = None if self.present and not self.wanted else _change(self.host, self.wanted)
        if self.change and self.change.needed and self.wait is None:
            self.remarks = coded("NPU_KUBELET_PENDING", [_sentence(self.change)])

    def run(self) -> None:
        if self.change and self.wait and self.change.needed:
            drop_in.apply(self.host, self.change, self.wait)
            self._applied = True

    def undo(self) -> None:
        """Restart the kubelet with the drop-ins of before. A change that failed has been taken back already."""
        if self._applied and self.change and self.wait:
            drop_in.apply(self.host, drop_in.inverse(self.host, self.change), self.wait)

    def pending(self) -> list[str]:
        return self.change.differences if self.change and not self.wait else []

    def result(self) -> dict[str, Any]:
        change = self.change
        return {"path": change.path if change else None, "pending": self.pending(), "removed": change.removed if change else []}

    def lines(self) -> dict[str, list[str]]:
        return {diffs.KUBELET: self.change.differences} if self.change and self.changed else {}


class Restore(step.Restore):
    """Removes the drop-in and restarts the kubelet of a drained node. On another node it stays: without it a kubelet with the old state
    would not start again."""

    change: drop_in.Change | None = None

    @property
    def changed(self) -> bool:
        return self.change is not None

    def look(self, check: bool) -> None:
        for path in filter(self.host.exists, drop_in.installed(self.host)):
            if self.options.kubelet_wait:
                self.change = self.outcome.attempt(SECTION, drop_in.look, self.host, path, None)
                return
            self.outcome.pending["kubelet"] = (
                "%s stays, because the kubelet runs with it: drain the node and unbind with npu_affinity_kubelet_restart: true" % path
            )
            self.outcome.kept.add(SECTION)

    def run(self) -> None:
        if self.change and self.options.kubelet_wait:
            self.outcome.attempt(SECTION, drop_in.apply, self.host, self.change, self.options.kubelet_wait)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.KUBELET: self.change.differences} if self.change else {}


def compare(comparing: Comparing, wanted: KubeletLive | None) -> None:
    """Note a change that is pending, which is not drift; ``wanted`` is None where the drop-in is to be removed."""
    try:
        change = _change(comparing.host, wanted)
        pending = [_sentence(change)] if change and change.needed else []
    except ValueError as error:
        pending = ["the pending change of the kubelet cannot be made: %s" % error]
    comparing.findings.pending = pending
    comparing.findings.remarks += coded("NPU_KUBELET_PENDING", pending)


def _change(host: Host, wanted: KubeletLive | None) -> drop_in.Change | None:
    """Return the change of the drop-in. None if it is neither installed nor wanted."""
    path = wanted["path"] if wanted else next(iter(drop_in.installed(host)), None)
    return drop_in.look(host, path, wanted["content"] if wanted else None) if path else None


def _sentence(change: drop_in.Change) -> str:
    made = "; ".join(change.differences) or change.path
    return "the kubelet's change is pending: %s; bind with npu_affinity_kubelet_restart: true to drain the node and make it" % made
