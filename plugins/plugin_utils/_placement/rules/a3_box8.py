# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas A200T A3 Box8: eight dies in modules of two.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3``, as for 16 dies.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules.a3 import by_rest, dies, even

NAME = "a3_box8"
PRODUCT = "Atlas A200T A3 Box8"
CHIPS = 8
GROUP = 2
WORD, WORDS = "module", "modules"


def sizes(multi: bool) -> Collection[int]:
    return even(CHIPS, multi)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return dies(free, count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return by_rest(free, count, CHIPS)
