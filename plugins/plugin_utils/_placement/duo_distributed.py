# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atlas 300I Duo for distributed inference: two chips on a card, and cards are kept whole.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend310p/chip310px2``. An even number takes whole cards only. An odd one takes a chip
of a half-used card, if there is one, and whole cards; hosts without a half-used card come last.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import grouped, whole

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
