# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 200T or 200I A2 Box16: two HCCS rings of eight chips.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910b``. Up to 8 chips stay in the ring with the fewest free ones that
fit, the left one first. More are half from each ring, at the same positions (i and i+8); tasks of one job may have any positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import grouped, preferred

CHIPS = 16
RING = 8


class Box16:
    group = RING

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count <= RING:
            return preferred(free, RING, range(count, RING + 1), count)
        pairs = _pairs(free, multi)[: count // 2]
        return sorted(chip for pair in pairs for chip in pair) if len(pairs) == count // 2 else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if count <= RING:
            spare = [len(chips) - count for chips in grouped(free, RING).values() if len(chips) >= count]
        else:
            spare = [len(_pairs(free, multi)) - count // 2]
        best = min(spare, default=-1)
        return 0 if best < 0 else CHIPS * (allocatable - best) + CHIPS - len(free)


def _pairs(free: Sequence[int], multi: bool) -> list[tuple[int, int]]:
    """Return what a job over both rings may take: one chip of each ring at a time."""
    rings = grouped(free, RING)
    left, right = rings.get(0, []), rings.get(1, [])
    if multi:
        return list(zip(left, right, strict=False))
    return [(chip, chip + RING) for chip in left if chip + RING in right]
