# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 300I Duo handed out by chip: two chips on a card, and a task may cross cards.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend310p/chip310px2``. Half-used cards come first.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import fullest_last

NAME = "300I_duo_chip"
PRODUCT = "Atlas 300I Duo by chip"
CHIPS = 32
GROUP = 2
WORD, WORDS = "card", "cards"


def sizes(multi: bool) -> Collection[int]:
    return range(1, CHIPS + 1)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return fullest_last(free, GROUP, count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return 0
