# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets: by rings, cards, modules and meshes, and a table with a rule for each product.

Aims: few fragments (large blocks stay whole) and little traffic (same card, then HCCS, then PCIe). ``free`` is ascending, ``multi`` says
that the job has several tasks. Sources: Ascend/mind-cluster@22bb3d98, ``component/ascend-for-volcano/internal/npu`` (folders of it stand
above the rows) and "Affinity Based on Ascend AI Processors" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rule:
    """The rule of a product. This one takes the lowest free ids, on hosts with fewer free chips first (``internal/npu/base/frame.go``).

    ``family`` is that of its NPUs in a topology, ``chips`` the most that a host has. ``single`` are the sizes of a task that is its job,
    ``several`` those of a task of a job with more, where they differ. ``group`` is the number of chips in a group, which begins at a
    multiple of it, and ``word`` what it is called. ``loose`` are sizes that are allowed without affinity, ``superpod`` says that hosts are
    in SuperPods.
    """

    name: str
    product: str
    family: str
    chips: int
    single: Collection[int]
    group: int = 1
    word: str = "chip"
    several: Collection[int] = ()
    loose: Collection[int] = ()
    superpod: bool = False

    @property
    def words(self) -> str:
        return f"{self.word}es" if self.word.endswith("sh") else f"{self.word}s"

    def sizes(self, multi: bool) -> Collection[int]:
        """Return the numbers of chips that a task may ask for."""
        return self.several if multi and self.several else self.single

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        """Return the chips in the order in which they are taken, None where none fit. ``count`` is a size that the product allows."""
        return list(free[:count]) if len(free) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return how well a host suits, the most suitable first; 0 where the rule has no score or does not fit."""
        return 100 * allocatable - len(free)


class Across(Rule):
    """Chips of any groups, those of the groups with the fewest free ones first, on any host."""

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        chips = [chip for group in sorted(grouped(free, self.group).values(), key=len) for chip in group]
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return 0


class Modules(Rule):
    """Whole modules of two dies. One die comes from a module of which the other is in use, if there is one.

    The fewer of the host's ``chips`` stay free, the better the score; for one die, a host with a half-free module comes first.
    """

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count == 1:
            return tightest(free, self.group, 1)
        dies = whole(free, self.group)
        return dies[:count] if len(dies) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if not free:
            return 0
        best = len(free) - count if len(free) >= count else 15
        if count == 1 and len(whole(free, self.group)) == len(free):
            best += self.chips
        return self.chips * (self.group * self.chips - best)


@dataclass(frozen=True)
class Cards(Rule):
    """Chips of one card. ``rows`` has, for each count, the published scores of a card by the number of its free chips.

    The lowest comes first, ``group`` is impossible.
    """

    rows: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def best(self, free: Sequence[int], count: int) -> tuple[int, list[int]]:
        """Return the score and the free chips of the best card, the lowest card where several have that score."""
        rated = ((self.rows[count][len(chips) - 1], chips) for chips in grouped(free, self.group).values())
        return min(rated, default=(self.group, []))

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        row, chips = self.best(free, count)
        return chips[:count] if row < self.group else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return 8 * (self.group - self.best(free, count)[0])


class Rings(Cards):
    """Chips of one HCCS ring of four, or all of the host's ``chips``.

    For one chip, rings with 1, 3, 2, 4 free chips are taken in this order, so that odd remainders go first and even blocks stay whole.
    """

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count > self.group:
            return list(free) if len(free) == self.chips else None
        return super().pick(free, count, multi)

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if count > self.group:
            return 8 * allocatable * self.group if len(free) == self.chips else 0
        best = self.best(free, count)[0]
        in_use = self.chips - len(free) if self.chips > self.group else 0
        return 0 if best == self.group else 8 * (allocatable * self.group - best) + in_use


class Box16(Rule):
    """Two HCCS rings of eight chips (``internal/npu/ascend910/ascend910b``).

    Up to 8 chips stay in the ring with the fewest free ones that fit, the left one first. More are half from each ring, at the same
    positions (i and i+8); tasks of one job may have any positions.
    """

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count <= self.group:
            return tightest(free, self.group, count)
        pairs = self._pairs(free, multi)[: count // 2]
        return sorted(chip for pair in pairs for chip in pair) if len(pairs) == count // 2 else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        if count <= self.group:
            spare = [len(chips) - count for chips in grouped(free, self.group).values() if len(chips) >= count]
        else:
            spare = [len(self._pairs(free, multi)) - count // 2]
        best = min(spare, default=-1)
        return 0 if best < 0 else self.chips * (allocatable - best) + self.chips - len(free)

    def _pairs(self, free: Sequence[int], multi: bool) -> list[tuple[int, int]]:
        """Return what a job over both rings may take: one chip of each ring at a time."""
        rings = grouped(free, self.group)
        left, right = rings.get(0, []), rings.get(1, [])
        if multi:
            return list(zip(left, right, strict=False))
        return [(chip, chip + self.group) for chip in left if chip + self.group in right]


SCORED = 8
"""The published scores of the Atlas 300I Duo end at so many free chips."""


class DuoDistributed(Rule):
    """Cards of two chips for distributed inference (``internal/npu/ascend310p/chip310px2``).

    An even number takes whole cards only. An odd one takes a chip of a half-used card, if there is one, and whole cards; hosts without a
    half-used card come last.
    """

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        chips = [*(self._halves(free)[:1] if count % 2 else ()), *whole(free, self.group)]
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        spare = len(free) - count
        if spare < 0 or len(free) > SCORED:
            return 0
        best = 9 + spare // 2 if count % 2 and not self._halves(free) else 1 + spare
        return 8 * (16 - best)

    def _halves(self, free: Sequence[int]) -> list[int]:
        return [chips[0] for chips in grouped(free, self.group).values() if len(chips) == 1]


class Meshes(Rule):
    """8 or 16 chips in groups of four that are all linked to each other (``internal/npu/policy/chip4nodex``).

    Less than four chips come from the tightest mesh, multiples of four are whole meshes, and other numbers are the lowest free ids.
    """

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        if count < self.group:
            return tightest(free, self.group, count)
        chips = list(free) if count % self.group else whole(free, self.group)
        return chips[:count] if len(chips) >= count else None

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return the published score: fewer meshes that fit come first, then fewer free chips."""
        spare = len(free) - count
        if spare < 0:
            return 0
        if count > self.group and count % self.group:
            return self.chips * (self.chips - spare)
        fitting = sum(len(mesh) >= min(count, self.group) for mesh in grouped(free, self.group).values())
        over = fitting - max(1, count // self.group)
        weight = 16 if self.chips == 8 else 64
        return 0 if over < 0 else weight * (weight - self.chips * over - spare)


def grouped(free: Sequence[int], size: int) -> dict[int, list[int]]:
    """Return the free chips by the number of their group, ascending."""
    groups: dict[int, list[int]] = {}
    for chip in sorted(free):
        groups.setdefault(chip // size, []).append(chip)
    return groups


def tightest(free: Sequence[int], size: int, count: int) -> list[int] | None:
    """Return the first chips of the group with the fewest free ones that are enough; the lowest group where several have as many."""
    fitting = [chips for chips in grouped(free, size).values() if len(chips) >= count]
    return min(fitting, key=len)[:count] if fitting else None


def whole(free: Sequence[int], size: int) -> list[int]:
    """Return the chips of the groups that are free as a whole."""
    return [chip for chips in grouped(free, size).values() if len(chips) == size for chip in chips]


_CARD_OF_4 = {1: (0, 2, 1, 3), 2: (4, 0, 1, 2), 3: (4, 4, 0, 1), 4: (4, 4, 4, 0)}
_CARD_OF_2 = {1: (0, 1), 2: (2, 0)}
_RING = {1: (0, 2, 1, 3), 2: (4, 0, 2, 1), 4: (4, 4, 4, 0)}
_UP_TO_4, _UP_TO_8, _UP_TO_16, _UP_TO_32, _UP_TO_64 = (range(1, most + 1) for most in (4, 8, 16, 32, 64))
_EVEN = range(2, 17, 2)
_BOX16 = (*_UP_TO_8, *_EVEN[4:])
_NO_MESHES = (*range(5, 8), *range(9, 12), *range(13, 16))

_TABLE = (
    # ascend310/card310x4
    Cards("300I_card", "Atlas 300I by card", "310", 64, _UP_TO_4, 4, "card", rows=_CARD_OF_4),
    # ascend310/chip310x4
    Across("300I_chip", "Atlas 300I by chip", "310", 64, _UP_TO_64, 4, "card"),
    # ascend310p/card310px2
    Cards("300I_duo_card", "Atlas 300I Duo by card", "310p", 32, (1, 2), 2, "card", rows=_CARD_OF_2),
    # ascend310p/chip310px2
    Across("300I_duo_chip", "Atlas 300I Duo by chip", "310p", 32, _UP_TO_32, 2, "card"),
    DuoDistributed("300I_duo_distributed", "Atlas 300I Duo for distributed inference", "310p", 32, _UP_TO_32, 2, "card"),
    # cards with one chip each, which no rule of MindCluster groups
    Across("300I_pro", "server with Atlas 300I Pro", "310p", 64, _UP_TO_64),
    # factory.go (910bx8): no affinity between chips
    Rule("a2", "Atlas 800T A2 or Atlas 900 A2 unit", "a2", 8, _UP_TO_8),
    # ascend910/ascend910a3
    Modules("a3", "Atlas 800 A3", "a3", 16, (1, *_EVEN), 2, "module", _EVEN, superpod=True),
    Modules("a3_box8", "Atlas A200T A3 Box8", "a3", 8, (1, *_EVEN[:4]), 2, "module", _EVEN[:4], superpod=True),
    # ascend910/ascend910old/module910x8
    Rings("atlas800_9000", "Atlas 800 (model 9000)", "910", 8, (1, 2, 4, 8), 4, "ring", rows=_RING),
    # ascend910/ascend910b/module910bx16
    Box16("box16", "Atlas 200T A2 Box16", "a2", 16, _BOX16, 8, "ring"),
    # factory.go (910 card): cards of two chips
    Across("card_910_x2", "server with 910 cards", "910", 8, _UP_TO_8),
    # Ascend/ascend-for-volcano, internal/ascend910/half910x4
    Rings("half_910_x4", "half an Atlas 800 (model 9000)", "910", 4, (1, 2, 4), 4, "ring", rows=_RING),
    # factory.go (1p-8, 1p-16): processors without links
    Rule("atlas350_8", "Atlas 350, 8 processors without links", "a5", 8, _UP_TO_8),
    Rule("atlas350_16", "Atlas 350, 16 processors without links", "a5", 16, _UP_TO_16),
    # policy/chip4nodex
    Meshes("mesh4_8", "Atlas 350, 8 processors in meshes of 4", "a5", 8, _UP_TO_8, 4, "mesh", loose=_NO_MESHES[:3]),
    Meshes("mesh4", "Atlas 350, 16 processors in meshes of 4", "a5", 16, _UP_TO_16, 4, "mesh", loose=_NO_MESHES),
    # factory.go (850-Atlas-8p-8): a full mesh of 8
    Rule("atlas850", "Atlas 850 (standard cluster)", "a5", 8, (1, 2, 4, 8)),
    # policy/chip8node8sp
    Rule("atlas850_superpod", "Atlas 850 (SuperPoD)", "a5", 8, (1, 2, 4, 8), several=(8,), superpod=True),
    # policy/chip8node8ra64sp
    Rule("atlas950", "Atlas 950 SuperPoD", "a5", 8, _UP_TO_8, several=(8,), superpod=True),
)
RULES = {rule.name: rule for rule in _TABLE}
