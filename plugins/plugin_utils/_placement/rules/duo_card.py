# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 300I Duo handed out by card: two chips on a card, and a task stays on one.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend310p/card310px2``. One chip rather comes from a half-used card.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import best_row, preferred

NAME = "300I_duo_card"
PRODUCT = "Atlas 300I Duo by card"
CHIPS = 32
GROUP = 2
WORD, WORDS = "card", "cards"
ORDER = {1: (1, 2), 2: (2,)}
ROWS = {1: (0, 1), 2: (2, 0)}
"""Lower is better; 2 is impossible."""


def sizes(multi: bool) -> Collection[int]:
    return tuple(ORDER)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return preferred(free, GROUP, ORDER[count], count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return 8 * (GROUP - best_row(free, GROUP, ROWS, count))
