# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chip a job gets that shares one with others, by quotas of its cores and of its memory.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip1softsharedev``. Only jobs of the same policy share a chip. Of the chips in
use that still have room, the fullest comes first, and unused ones last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CORES = 100
"""The quota of a whole chip, in percent."""


def share(used: Mapping[Any, Mapping[str, Any]], unused: Iterable[int], request: Mapping[str, Any], chip_hbm_mb: int) -> tuple[int, int]:
    """Return the chip and its score.

    ``used`` maps chips to ``{core, hbm, policy}``: percent, MB and the name of the policy; ``request`` is ``{core, hbm_mb, policy}``.
    Raises ``ValueError`` where no chip has room; the sentence names what each lacks.
    """
    core, memory, policy = int(request["core"]), int(request["hbm_mb"]), request["policy"]
    if not 1 <= core <= CORES or not 1 <= memory <= chip_hbm_mb:
        raise ValueError(f"size not allowed: a share of a chip is 1 to {CORES} percent and 1 to {chip_hbm_mb} MB; got {core} and {memory}")
    full = []
    room = []
    for chip, has in sorted((int(chip), has) for chip, has in used.items()):
        if has["policy"] != policy:
            full.append(f"chip {chip} is shared by policy {has['policy']}")
        elif has["core"] + core > CORES or has["hbm"] + memory > chip_hbm_mb:
            full.append(f"chip {chip} has {CORES - has['core']} percent and {chip_hbm_mb - has['hbm']} MB left")
        else:
            room.append((-has["core"], -has["hbm"], chip))
    if room:
        taken, _memory, chip = min(room)
        return chip, _score(-taken, core)
    if chips := sorted(unused):
        return chips[0], _score(0, core)
    raise ValueError(
        f"no fit: no chip has room for {core} percent and {memory} MB under policy {policy}: {', '.join(full) or 'none is known'}; "
        "ask for less, or wait"
    )


def _score(used: int, asked: int) -> int:
    return 16 * (200 - (CORES - used - asked))
