# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets: a table with a rule for each product.

Sources: Ascend/mind-cluster@22bb3d98, ``component/ascend-for-volcano/internal/npu`` (folders of it stand above the rows) and "Affinity
Based on Ascend AI Processors" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import Box16
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import DuoDistributed
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import Mesh4
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import Across, Cards, Lowest, Modules, Rings, Way


@dataclass(frozen=True)
class Rule:
    """The rule of a product. ``family`` is that of its NPUs in a topology, ``chips`` the most that a host has.

    ``single`` are the sizes of a task that is its job, ``several`` those of a task of a job with more; ``word`` is what a group of chips
    is called. ``loose`` are sizes that are allowed without affinity. ``superpod`` says that hosts of the product are in SuperPods.
    """

    name: str
    product: str
    family: str
    chips: int
    way: Way
    single: Collection[int]
    several: Collection[int]
    word: str = "chip"
    loose: Collection[int] = ()
    superpod: bool = False

    @property
    def group(self) -> int:
        return self.way.group

    @property
    def words(self) -> str:
        return f"{self.word}es" if self.word.endswith("sh") else f"{self.word}s"

    def sizes(self, multi: bool) -> Collection[int]:
        """Return the numbers of chips that a task may ask for."""
        return self.several if multi else self.single

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        return self.way.pick(free, count, multi)

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        return self.way.score(free, count, allocatable, multi)


def _up_to(most: int) -> tuple[Collection[int], Collection[int]]:
    return range(1, most + 1), range(1, most + 1)


def _same(*sizes: int) -> tuple[Collection[int], Collection[int]]:
    return sizes, sizes


def _even(most: int) -> tuple[Collection[int], Collection[int]]:
    """Return 1 and the even numbers for a job of a single task, without 1 for others."""
    even = range(2, most + 1, 2)
    return (1, *even), even


_CARD_OF_4 = Cards(
    4,
    order={1: (1, 3, 2, 4), 2: (2, 3, 4), 3: (3, 4), 4: (4,)},
    rows={1: (0, 2, 1, 3), 2: (4, 0, 1, 2), 3: (4, 4, 0, 1), 4: (4, 4, 4, 0)},
)
_CARD_OF_2 = Cards(2, order={1: (1, 2), 2: (2,)}, rows={1: (0, 1), 2: (2, 0)})
_BOX16 = (*range(1, 9), *range(10, 17, 2))
_NO_MESHES = (*range(5, 8), *range(9, 12), *range(13, 16))

_TABLE = (
    # ascend310/card310x4
    Rule("300I_card", "Atlas 300I by card", "310", 64, _CARD_OF_4, *_up_to(4), "card"),
    # ascend310/chip310x4
    Rule("300I_chip", "Atlas 300I by chip", "310", 64, Across(4), *_up_to(64), "card"),
    # ascend310p/card310px2
    Rule("300I_duo_card", "Atlas 300I Duo by card", "310p", 32, _CARD_OF_2, *_up_to(2), "card"),
    # ascend310p/chip310px2
    Rule("300I_duo_chip", "Atlas 300I Duo by chip", "310p", 32, Across(2), *_up_to(32), "card"),
    Rule("300I_duo_distributed", "Atlas 300I Duo for distributed inference", "310p", 32, DuoDistributed(), *_up_to(32), "card"),
    # cards with one chip each, which no rule of MindCluster groups
    Rule("300I_pro", "server with Atlas 300I Pro", "310p", 64, Lowest(scored=False), *_up_to(64)),
    # factory.go (910bx8): no affinity between chips
    Rule("a2", "Atlas 800T A2 or Atlas 900 A2 unit", "a2", 8, Lowest(), *_up_to(8)),
    # ascend910/ascend910a3
    Rule("a3", "Atlas 800 A3", "a3", 16, Modules(16), *_even(16), "module", superpod=True),
    Rule("a3_box8", "Atlas A200T A3 Box8", "a3", 8, Modules(8), *_even(8), "module", superpod=True),
    # ascend910/ascend910old/module910x8
    Rule("atlas800_9000", "Atlas 800 (model 9000)", "910", 8, Rings(8), *_same(1, 2, 4, 8), "ring"),
    # ascend910/ascend910b/module910bx16
    Rule("box16", "Atlas 200T A2 Box16", "a2", 16, Box16(), *_same(*_BOX16), "ring"),
    # factory.go (910 card): cards of two chips
    Rule("card_910_x2", "server with 910 cards", "910", 8, Lowest(scored=False), *_up_to(8)),
    # Ascend/ascend-for-volcano, internal/ascend910/half910x4
    Rule("half_910_x4", "half an Atlas 800 (model 9000)", "910", 4, Rings(4), *_same(1, 2, 4), "ring"),
    # factory.go (1p-8, 1p-16): processors without links
    Rule("atlas350_8", "Atlas 350, 8 processors without links", "a5", 8, Lowest(), *_up_to(8)),
    Rule("atlas350_16", "Atlas 350, 16 processors without links", "a5", 16, Lowest(), *_up_to(16)),
    # policy/chip4nodex
    Rule("mesh4_8", "Atlas 350, 8 processors in meshes of 4", "a5", 8, Mesh4(8), *_up_to(8), "mesh", loose=_NO_MESHES[:3]),
    Rule("mesh4", "Atlas 350, 16 processors in meshes of 4", "a5", 16, Mesh4(16), *_up_to(16), "mesh", loose=_NO_MESHES),
    # factory.go (850-Atlas-8p-8): a full mesh of 8
    Rule("atlas850", "Atlas 850 (standard cluster)", "a5", 8, Lowest(), *_same(1, 2, 4, 8)),
    # policy/chip8node8sp
    Rule("atlas850_superpod", "Atlas 850 (SuperPoD)", "a5", 8, Lowest(), (1, 2, 4, 8), (8,), superpod=True),
    # policy/chip8node8ra64sp
    Rule("atlas950", "Atlas 950 SuperPoD", "a5", 8, Lowest(), range(1, 9), (8,), superpod=True),
)
RULES = {rule.name: rule for rule in _TABLE}
