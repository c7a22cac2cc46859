# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 350 with meshes of four: 8 or 16 chips in groups of four that are all linked to each other.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip4nodex``. Less than four chips come from the tightest mesh, multiples of
four are whole meshes, and other numbers are the lowest free ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import grouped, preferred, whole

MESH = 4


@dataclass(frozen=True)
class Mesh4:
    """``chips`` is the number of processors of a server: 8 or 16."""

    chips: int
    group: int = MESH

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count < MESH:
            return preferred(free, MESH, range(count, MESH + 1), count)
        chips = list(free) if count % MESH else whole(free, MESH)
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return the published score: fewer meshes that fit come first, then fewer free chips."""
        spare = len(free) - count
        if spare < 0:
            return 0
        if count > MESH and count % MESH:
            return self.chips * (self.chips - spare)
        fitting = sum(len(mesh) >= min(count, MESH) for mesh in grouped(free, MESH).values())
        over = fitting - max(1, count // MESH)
        weight = 16 if self.chips == 8 else 64
        return 0 if over < 0 else weight * (weight - self.chips * over - spare)
