# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How certain a change between two measurements is, by the values of their windows.

A bootstrap: means of values drawn again and again from the windows of both sides (Efron and Tibshirani, "An Introduction to the Bootstrap",
chapter 13). With ten windows, the percentiles of such means cover too little; those taken here cover 95 %.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

FEWEST = 8
"""Windows of each side below which nothing is concluded."""
_DRAWS = 1000
_OUTSIDE = 10
"""Draws on each side of the interval."""


class Interval(NamedTuple):
    """Where the change lies with a probability of 95 %: in percent, or in the metric's unit."""

    low: float
    high: float

    @property
    def is_change(self) -> bool:
        return not self.low <= 0 <= self.high

    def __str__(self) -> str:
        low, high = (f"{bound:.0f}" if abs(bound) >= 10 else f"{bound:.1f}" for bound in self)
        return f"{low} or more" if self.high == math.inf else f"{low} to {high}"


def of_share(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Return the change of the mean in percent."""
    return _between([100 * (later / earlier - 1) if earlier else math.inf if later else 0.0 for earlier, later in _means(before, after)])


def of_difference(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Return the change of the mean in the metric's unit."""
    return _between([later - earlier for earlier, later in _means(before, after)])


def spread(windows: Sequence[float]) -> float:
    """Return by how much windows of one measurement differ, in percent of their mean."""
    mean = statistics.fmean(windows)
    return 100 * (max(windows) - min(windows)) / mean if mean else 0.0


def _means(before: Sequence[float], after: Sequence[float]) -> list[tuple[float, float]]:
    generator = random.Random(0)  # the same windows always give the same interval

    def mean(windows: Sequence[float]) -> float:
        return statistics.fmean(generator.choices(windows, k=len(windows)))

    return [(mean(before), mean(after)) for _draw in range(_DRAWS)]


def _between(changes: list[float]) -> Interval:
    changes.sort()
    return Interval(changes[_OUTSIDE], changes[-1 - _OUTSIDE])
