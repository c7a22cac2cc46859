# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 800 training server (model 9000, 9010): two HCCS rings of four chips.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910old/module910x8``. A job of 1, 2 or 4 stays in one ring. For one
chip, rings with 1, 3, 2, 4 free chips are taken in this order, so that odd remainders go first and even blocks stay whole.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import best_row, preferred

NAME = "atlas800_9000"
PRODUCT = "Atlas 800 (model 9000)"
CHIPS = 8
GROUP = 4
WORD, WORDS = "ring", "rings"
ORDER = {1: (1, 3, 2, 4), 2: (2, 4, 3), 4: (4,)}
ROWS = {1: (0, 2, 1, 3), 2: (4, 0, 2, 1), 4: (4, 4, 4, 0)}
"""Lower is better; 4 is impossible."""


def sizes(multi: bool) -> Collection[int]:
    return (*ORDER, CHIPS)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    if count == CHIPS:
        return list(free) if len(free) == CHIPS else None
    return preferred(free, GROUP, ORDER[count], count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    if count == CHIPS:
        return 8 * allocatable * GROUP if len(free) == CHIPS else 0
    best = best_row(free, GROUP, ROWS, count)
    return 0 if best == GROUP else 8 * (allocatable * GROUP - best) + CHIPS - len(free)
