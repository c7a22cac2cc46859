# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 800T A2 or Atlas 900 A2 unit: no affinity between chips.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910b/module910bx8``. The lowest free ids are taken.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

NAME = "a2"
PRODUCT = "Atlas 800T A2 or Atlas 900 A2 unit"
CHIPS = 8
GROUP = 1
WORD, WORDS = "chip", "chips"


def sizes(multi: bool) -> Collection[int]:
    return range(1, CHIPS + 1)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return list(free[:count]) if len(free) >= count else None


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return 100 * allocatable - len(free)
