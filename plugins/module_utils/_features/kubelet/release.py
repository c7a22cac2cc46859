# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-in of the kubelet, which unbind leaves: without it a kubelet with the old state would not start again."""

from __future__ import annotations

from ..._state import release
from . import drop_in
from .feature import SECTION


class Release(release.Release):
    """Says how the drop-in goes: module kubelet_config takes it away from a drained node."""

    def look(self) -> None:
        for path in filter(self.host.exists, drop_in.installed(self.host)):
            self.outcome.warnings.append(
                "%s stays, because the kubelet runs with it: drain the node and unbind with npu_affinity_kubelet_restart: true" % path
            )
            self.outcome.kept.add(SECTION)
