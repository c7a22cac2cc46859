# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 900 A3 SuperPoD, Atlas 800T and 800I A3: modules of two dies.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3``. Whole modules only; a job of a single task may have one die,
and takes it from a module of which the other is in use.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import grouped, preferred, whole

NAME = "a3"
PRODUCT = "Atlas 800 A3"
CHIPS = 16
GROUP = 2
WORD, WORDS = "module", "modules"


def sizes(multi: bool) -> Collection[int]:
    return even(CHIPS, multi)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    return dies(free, count)


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    return by_rest(free, count, CHIPS)


def even(chips: int, multi: bool) -> Collection[int]:
    """Return the even numbers up to that many chips, and 1 for a job of a single task."""
    return (*(() if multi else (1,)), *range(GROUP, chips + 1, GROUP))


def dies(free: Sequence[int], count: int) -> list[int] | None:
    """Return whole modules; for one die, that of a half-free module before that of a free one."""
    if count == 1:
        return preferred(free, GROUP, (1, 2), 1)
    chips = whole(free, GROUP)
    return chips[:count] if len(chips) >= count else None


def by_rest(free: Sequence[int], count: int, chips: int) -> int:
    """Return the score of a host with that many chips: the fewer stay free, the better, and one die prefers a half-free module."""
    if not free:
        return 0
    best = len(free) - count if len(free) >= count else 15
    if count == 1 and all(len(module) == GROUP for module in grouped(free, GROUP).values()):
        best += chips
    return chips * (GROUP * chips - best)
