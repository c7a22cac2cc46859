# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 300I handed out by card: four chips on a card, and a task stays on one.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend310/card310x4``. For one chip, cards with 1, 3, 2, 4 free chips are taken in
this order; two chips rather come from a card with two or three free ones than from a whole one.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import best_row, preferred

NAME = "300I_card"
PRODUCT = "Atlas 300I by card"
CHIPS = 64
GROUP = 4
WORD, WORDS = "card", "cards"
ORDER = {1: (1, 3, 2, 4), 2: (2, 3, 4), 3: (3, 4), 4: (4,)}
ROWS = {1: (0, 2, 1, 3), 2: (4, 0, 1, 2), 3: (4, 4, 0, 1), 4: (4, 4, 4, 0)}
"""Lower is better; 4 is impossible."""


def sizes(multi: bool) -> Collection[int]:
    return tuple(ORDER)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return preferred(free, GROUP, ORDER[count], count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return 8 * (GROUP - best_row(free, GROUP, ROWS, count))
