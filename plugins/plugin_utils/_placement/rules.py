# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets: a table with a rule for each product.

Sources: Ascend/mind-cluster@22bb3d98, ``component/ascend-for-volcano/internal/npu`` (folders of it stand above the rows) and "Affinity
Based on Ascend AI Processors" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import Across, Box16, Cards, DuoDistributed, Meshes
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import Modules, Rings, Rule


def _up_to(most: int) -> tuple[Collection[int], Collection[int]]:
    return range(1, most + 1), range(1, most + 1)


def _same(*sizes: int) -> tuple[Collection[int], Collection[int]]:
    return sizes, sizes


def _even(most: int) -> tuple[Collection[int], Collection[int]]:
    """Return 1 and the even numbers for a job of a single task, without 1 for others."""
    even = range(2, most + 1, 2)
    return (1, *even), even


_CARD_OF_4 = {1: (0, 2, 1, 3), 2: (4, 0, 1, 2), 3: (4, 4, 0, 1), 4: (4, 4, 4, 0)}
_CARD_OF_2 = {1: (0, 1), 2: (2, 0)}
_RING = {1: (0, 2, 1, 3), 2: (4, 0, 2, 1), 4: (4, 4, 4, 0)}
_BOX16 = (*range(1, 9), *range(10, 17, 2))
_NO_MESHES = (*range(5, 8), *range(9, 12), *range(13, 16))

_TABLE = (
    # ascend310/card310x4
    Cards("300I_card", "Atlas 300I by card", "310", 64, *_up_to(4), 4, "card", rows=_CARD_OF_4),
    # ascend310/chip310x4
    Across("300I_chip", "Atlas 300I by chip", "310", 64, *_up_to(64), 4, "card"),
    # ascend310p/card310px2
    Cards("300I_duo_card", "Atlas 300I Duo by card", "310p", 32, *_up_to(2), 2, "card", rows=_CARD_OF_2),
    # ascend310p/chip310px2
    Across("300I_duo_chip", "Atlas 300I Duo by chip", "310p", 32, *_up_to(32), 2, "card"),
    DuoDistributed("300I_duo_distributed", "Atlas 300I Duo for distributed inference", "310p", 32, *_up_to(32), 2, "card"),
    # cards with one chip each, which no rule of MindCluster groups
    Across("300I_pro", "server with Atlas 300I Pro", "310p", 64, *_up_to(64)),
    # factory.go (910bx8): no affinity between chips
    Rule("a2", "Atlas 800T A2 or Atlas 900 A2 unit", "a2", 8, *_up_to(8)),
    # ascend910/ascend910a3
    Modules("a3", "Atlas 800 A3", "a3", 16, *_even(16), 2, "module", superpod=True),
    Modules("a3_box8", "Atlas A200T A3 Box8", "a3", 8, *_even(8), 2, "module", superpod=True),
    # ascend910/ascend910old/module910x8
    Rings("atlas800_9000", "Atlas 800 (model 9000)", "910", 8, *_same(1, 2, 4, 8), 4, "ring", rows=_RING),
    # ascend910/ascend910b/module910bx16
    Box16("box16", "Atlas 200T A2 Box16", "a2", 16, *_same(*_BOX16), 8, "ring"),
    # factory.go (910 card): cards of two chips
    Across("card_910_x2", "server with 910 cards", "910", 8, *_up_to(8)),
    # Ascend/ascend-for-volcano, internal/ascend910/half910x4
    Rings("half_910_x4", "half an Atlas 800 (model 9000)", "910", 4, *_same(1, 2, 4), 4, "ring", rows=_RING),
    # factory.go (1p-8, 1p-16): processors without links
    Rule("atlas350_8", "Atlas 350, 8 processors without links", "a5", 8, *_up_to(8)),
    Rule("atlas350_16", "Atlas 350, 16 processors without links", "a5", 16, *_up_to(16)),
    # policy/chip4nodex
    Meshes("mesh4_8", "Atlas 350, 8 processors in meshes of 4", "a5", 8, *_up_to(8), 4, "mesh", loose=_NO_MESHES[:3]),
    Meshes("mesh4", "Atlas 350, 16 processors in meshes of 4", "a5", 16, *_up_to(16), 4, "mesh", loose=_NO_MESHES),
    # factory.go (850-Atlas-8p-8): a full mesh of 8
    Rule("atlas850", "Atlas 850 (standard cluster)", "a5", 8, *_same(1, 2, 4, 8)),
    # policy/chip8node8sp
    Rule("atlas850_superpod", "Atlas 850 (SuperPoD)", "a5", 8, (1, 2, 4, 8), (8,), superpod=True),
    # policy/chip8node8ra64sp
    Rule("atlas950", "Atlas 950 SuperPoD", "a5", 8, range(1, 9), (8,), superpod=True),
)
RULES = {rule.name: rule for rule in _TABLE}
