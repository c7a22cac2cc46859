# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which chips of a host are chosen that several products share; what is particular to one product has a file of its own.

Aims: few fragments (large blocks stay whole) and little traffic (same card, then HCCS, then PCIe). ``free`` is ascending, ``multi`` says
that the job has several tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import best_row, fullest_last, grouped, preferred, whole


class Way(Protocol):
    """How chips are chosen."""

    @property
    def group(self) -> int:
        """Return the number of chips in a group; groups begin at multiples of it."""

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        """Return the chips in the order in which they are taken, None where none fit. ``count`` is a size that the product allows."""

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return how well a host suits, the most suitable first; 0 where the way has no score or does not fit."""


@dataclass(frozen=True)
class Lowest:
    """The lowest free ids. With ``scored``, hosts with fewer free chips come first (``internal/npu/base/frame.go``)."""

    scored: bool = True
    group: int = 1

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        return list(free[:count]) if len(free) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return 100 * allocatable - len(free) if self.scored else 0


@dataclass(frozen=True)
class Across:
    """Chips of any groups, those of the groups with the fewest free ones first."""

    group: int

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        return fullest_last(free, self.group, count)

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return 0


@dataclass(frozen=True)
class Modules:
    """Whole modules of two dies. One die comes from a module of which the other is in use, if there is one.

    The fewer of the host's ``chips`` stay free, the better the score; for one die, a host with a half-free module comes first.
    """

    chips: int
    group: int = 2

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count == 1:
            return preferred(free, self.group, (1, 2), 1)
        dies = whole(free, self.group)
        return dies[:count] if len(dies) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if not free:
            return 0
        best = len(free) - count if len(free) >= count else 15
        if count == 1 and all(len(module) == self.group for module in grouped(free, self.group).values()):
            best += self.chips
        return self.chips * (self.group * self.chips - best)


@dataclass(frozen=True)
class Cards:
    """Chips of one card. ``order`` has, for each count, numbers of free chips of a card by preference; ``rows`` the published scores.

    A row is by number of free chips. Lower is better, ``group`` is impossible.
    """

    group: int
    order: Mapping[int, Sequence[int]]
    rows: Mapping[int, Sequence[int]]

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        return preferred(free, self.group, self.order[count], count)

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return 8 * (self.group - best_row(free, self.group, self.rows, count))


@dataclass(frozen=True)
class Rings:
    """Chips of one HCCS ring of four, or all of the host's ``chips``.

    For one chip, rings with 1, 3, 2, 4 free chips are taken in this order, so that odd remainders go first and even blocks stay whole.
    """

    chips: int
    group: int = 4
    order: Mapping[int, Sequence[int]] = field(default_factory=lambda: {1: (1, 3, 2, 4), 2: (2, 4, 3), 4: (4,)})
    rows: Mapping[int, Sequence[int]] = field(default_factory=lambda: {1: (0, 2, 1, 3), 2: (4, 0, 2, 1), 4: (4, 4, 4, 0)})

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count > self.group:
            return list(free) if len(free) == self.chips else None
        return preferred(free, self.group, self.order[count], count)

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if count > self.group:
            return 8 * allocatable * self.group if len(free) == self.chips else 0
        best = best_row(free, self.group, self.rows, count)
        in_use = self.chips - len(free) if self.chips > self.group else 0
        return 0 if best == self.group else 8 * (allocatable * self.group - best) + in_use
