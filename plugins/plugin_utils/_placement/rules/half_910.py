# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Half an Atlas 800 training server: one HCCS ring of four chips.

Source: Ascend/ascend-for-volcano, ``internal/ascend910/half910x4``; the sizes and rows are those of the whole server.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import best_row, preferred
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules.atlas_800_9000 import ORDER, ROWS

NAME = "half_910_x4"
PRODUCT = "half an Atlas 800 (model 9000)"
CHIPS = 4
GROUP = 4
WORD, WORDS = "ring", "rings"


def sizes(multi: bool) -> Collection[int]:
    return tuple(ORDER)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return preferred(free, GROUP, ORDER[count], count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    best = best_row(free, GROUP, ROWS, count)
    return 0 if best == GROUP else 8 * (allocatable * GROUP - best)
