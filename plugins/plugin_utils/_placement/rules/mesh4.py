# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 350 with a mesh of four: up to 16 chips in groups of four that are all linked to each other.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip4nodex``. Less than four chips come from the tightest mesh, multiples of
four are whole meshes, and other numbers are the lowest free ids.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import grouped, preferred, whole

NAME = "mesh4"
PRODUCT = "Atlas 350 with a mesh of 4"
CHIPS = 16
GROUP = 4
WORD, WORDS = "mesh", "meshes"


def sizes(multi: bool) -> Collection[int]:
    return range(1, CHIPS + 1)


def pick(free: Sequence[int], count: int, multi: bool) -> list[int] | None:
    if count < GROUP:
        return preferred(free, GROUP, range(count, GROUP + 1), count)
    chips = list(free) if count % GROUP else whole(free, GROUP)
    return chips[:count] if len(chips) >= count else None


def score(free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
    """Return the published score: fewer meshes that fit come first, then fewer free chips. Servers have 8 or 16 chips."""
    chips = 8 if allocatable <= 8 else CHIPS
    spare = len(free) - count
    if spare < 0 or len(free) > chips:
        return 0
    if count > GROUP and count % GROUP:
        return chips * (chips - spare)
    fitting = sum(len(mesh) >= min(count, GROUP) for mesh in grouped(free, GROUP).values())
    over = fitting - max(1, count // GROUP)
    weight = 16 if chips == 8 else 64
    return 0 if over < 0 else weight * (weight - chips * over - spare)
