# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What units of slices need on the host before they are written."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ..._host.host import Host
from ..._kernel.machine import slice_path
from ..._state.step import Check
from ..._state.unit_files import withheld

if TYPE_CHECKING:
    from ..._base.documents import AppliedState


class Prerequisites(Check):
    """CPU sets for the units of a desired state, and the programs that these start, except those that feature vnpu places first."""

    def __init__(self, host: Host, state: AppliedState) -> None:
        Check.__init__(self)
        self.host = host
        self.state = state

    def look(self, check: bool) -> None:
        for entry in self.state["expected"]:
            parent = posixpath.dirname(slice_path(entry["unit"])) if entry["unit"].endswith(".slice") else ""
            why = withheld(self.host, parent)
            if why:
                raise ValueError("%s cannot get CPUs %s: %s" % (entry["unit"], entry["cpus"], why))
        layout = self.state["live"].get("vnpu")
        placed = ["%s/%s" % (layout["folder"], file["name"]) for file in layout["files"]] if layout else []
        for path in self.state["programs"]:
            if path not in placed and not self.host.exists(path):
                raise ValueError(
                    "%s is not on the host, and the units of vNPUs start it: containers would wait for their limiter and then fail. Place "
                    "it (npu_affinity_vnpu_enabled with npu_affinity_vnpu_files), or set npu_affinity_vnpu_limiter to '' where the library "
                    "does without one" % path
                )
