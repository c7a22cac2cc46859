# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet as a step of the transaction that applies a desired state: the step says what is pending, and writes nothing.

The kubelet restarts with other CPU sets only on a drained node, and the controller drains it. Module ``kubelet_config`` then makes the
change, and restores it if the kubelet does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._host.host import Host
from ..._state.step import LiveStep
from . import drop_in

if TYPE_CHECKING:
    from ..._base.documents import KubeletLive


class Kubelet(LiveStep):
    """``wanted`` is what a desired state has as ``live.kubelet``, None on a host without a kubelet, and with ``present`` false, where the
    drop-in is to be removed."""

    title = "kubelet settings"
    key = "kubelet"

    def __init__(self, host: Host, wanted: KubeletLive | None, present: bool) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.wanted = wanted
        self.present = present
        self.change: drop_in.Change | None = None

    @property
    def changed(self) -> bool:
        return False

    def look(self, check: bool) -> None:
        if self.present and not self.wanted:
            self.warnings = ["No kubelet found on this host; nothing to configure"]
            return
        path = self.wanted["path"] if self.wanted else next(iter(drop_in.installed(self.host)), None)
        if path is not None:
            self.change = drop_in.look(self.host, path, self.wanted["content"] if self.wanted else None)

    def run(self) -> None:
        """Nothing: the change is pending until the node is drained."""

    def undo(self) -> None:
        """Nothing was changed."""

    def pending(self) -> list[str]:
        return self.change.differences if self.change else []

    def result(self) -> dict[str, Any]:
        """Return ``{path, pending, removed}`` as module ``kubelet_config`` has them."""
        change = self.change
        return {
            "path": change.path if change else None,
            "pending": change.differences if change else [],
            "removed": change.removed if change else [],
        }

    def lines(self) -> dict[str, list[str]]:
        return {}
