# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-in of the kubelet, which goes from a drained node only: without it a kubelet with the old state would not start again."""

from __future__ import annotations

from ..._state import release
from ..._state.diffs import diffs
from . import drop_in
from .places import SECTION


class Release(release.Release):
    """Removes the drop-in and restarts the kubelet of a drained node. On another node it stays."""

    change: drop_in.Change | None = None

    @property
    def changed(self) -> bool:
        return self.change is not None

    def look(self) -> None:
        for path in filter(self.host.exists, drop_in.installed(self.host)):
            if self.options.kubelet_wait:
                self.change = self.outcome.attempt(SECTION, drop_in.look, self.host, path, None)
                return
            self.outcome.pending["kubelet"] = (
                "%s stays, because the kubelet runs with it: drain the node and unbind with npu_affinity_kubelet_restart: true" % path
            )
            self.outcome.kept.add(SECTION)

    def release(self) -> None:
        if self.change and self.options.kubelet_wait:
            self.outcome.attempt(SECTION, drop_in.apply, self.host, self.change, self.options.kubelet_wait)

    def lines(self) -> dict[str, list[str]]:
        return {diffs.KUBELET: self.change.differences} if self.change else {}
