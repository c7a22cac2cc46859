# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which chips of a host are chosen: by rings, cards, modules and meshes.

Aims: few fragments (large blocks stay whole) and little traffic (same card, then HCCS, then PCIe). ``free`` is ascending, ``multi`` says
that the job has several tasks. Source of the rules: Ascend/mind-cluster@22bb3d98.

- Atlas 200T or 200I A2 Box16, two HCCS rings of eight chips (``internal/npu/ascend910/ascend910b``): up to 8 chips stay in the ring with
  the fewest free ones that fit, the left one first. More are half from each ring, at the same positions (i and i+8); tasks of one job may
  have any positions.
- Atlas 300I Duo for distributed inference, two chips on a card (``internal/npu/ascend310p/chip310px2``): an even number takes whole cards
  only. An odd one takes a chip of a half-used card, if there is one, and whole cards; hosts without a half-used card come last.
- Atlas 350 with meshes of four, 8 or 16 chips in groups of four that are all linked to each other (``internal/npu/policy/chip4nodex``):
  less than four chips come from the tightest mesh, multiples of four are whole meshes, and other numbers are the lowest free ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


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


def grouped(free: Sequence[int], size: int) -> dict[int, list[int]]:
    """Return the free chips by the number of their group, ascending."""
    groups: dict[int, list[int]] = {}
    for chip in sorted(free):
        groups.setdefault(chip // size, []).append(chip)
    return groups


def preferred(free: Sequence[int], size: int, order: Sequence[int], count: int) -> list[int] | None:
    """Return the first chips of the group whose number of free chips comes first in ``order``; the lowest group where several have it."""
    groups = grouped(free, size)
    for number in order:
        for chips in groups.values():
            if len(chips) == number:
                return chips[:count]
    return None


def fullest_last(free: Sequence[int], size: int, count: int) -> list[int] | None:
    """Return chips group by group, those with the fewest free ones first; groups may be split."""
    groups = sorted(grouped(free, size).values(), key=len)
    chips = [chip for group in groups for chip in group]
    return chips[:count] if len(chips) >= count else None


def whole(free: Sequence[int], size: int) -> list[int]:
    """Return the chips of the groups that are free as a whole."""
    return [chip for chips in grouped(free, size).values() if len(chips) == size for chip in chips]


def best_row(free: Sequence[int], size: int, rows: Mapping[int, Sequence[int]], count: int) -> int:
    """Return the lowest entry of the count's row over the groups; a row is by number of free chips, ``size`` means impossible."""
    return min((rows[count][len(chips) - 1] for chips in grouped(free, size).values()), default=size)


def counted(number: int, word: str) -> str:
    """Return ``1 NPU``, ``2 NPUs``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


CHIPS = 16
RING = 8


class Box16:
    group = RING

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count <= RING:
            return preferred(free, RING, range(count, RING + 1), count)
        pairs = _pairs(free, multi)[: count // 2]
        return sorted(chip for pair in pairs for chip in pair) if len(pairs) == count // 2 else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if count <= RING:
            spare = [len(chips) - count for chips in grouped(free, RING).values() if len(chips) >= count]
        else:
            spare = [len(_pairs(free, multi)) - count // 2]
        best = min(spare, default=-1)
        return 0 if best < 0 else CHIPS * (allocatable - best) + CHIPS - len(free)


def _pairs(free: Sequence[int], multi: bool) -> list[tuple[int, int]]:
    """Return what a job over both rings may take: one chip of each ring at a time."""
    rings = grouped(free, RING)
    left, right = rings.get(0, []), rings.get(1, [])
    if multi:
        return list(zip(left, right, strict=False))
    return [(chip, chip + RING) for chip in left if chip + RING in right]


CARD = 2
SCORED = 8
"""The published scores end at so many free chips."""


class DuoDistributed:
    group = CARD

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        chips = [*(_halves(free)[:1] if count % 2 else ()), *whole(free, CARD)]
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        spare = len(free) - count
        if spare < 0 or len(free) > SCORED:
            return 0
        best = 9 + spare // 2 if count % 2 and not _halves(free) else 1 + spare
        return 8 * (16 - best)


def _halves(free: Sequence[int]) -> list[int]:
    return [chips[0] for chips in grouped(free, CARD).values() if len(chips) == 1]


MESH = 4


@dataclass(frozen=True)
class Mesh4:
    """``chips`` is the number of processors of a server: 8 or 16."""

    chips: int
    group: int = MESH

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count < MESH:
            return preferred(free, MESH, range(count, MESH + 1), count)
        chips = list(free) if count % MESH else whole(free, MESH)
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return the published score: fewer meshes that fit come first, then fewer free chips."""
        spare = len(free) - count
        if spare < 0:
            return 0
        if count > MESH and count % MESH:
            return self.chips * (self.chips - spare)
        fitting = sum(len(mesh) >= min(count, MESH) for mesh in grouped(free, MESH).values())
        over = fitting - max(1, count // MESH)
        weight = 16 if self.chips == 8 else 64
        return 0 if over < 0 else weight * (weight - self.chips * over - spare)
