# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""server with 910 cards: no affinity between chips.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910``, cards of two chips. The lowest free ids are taken.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

NAME = "card_910_x2"
PRODUCT = "server with 910 cards"
CHIPS = 8
GROUP = 1
WORD, WORDS = "chip", "chips"


def sizes(multi: bool) -> Collection[int]:
    return range(1, CHIPS + 1)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return list(free[:count]) if len(free) >= count else None


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return 0
