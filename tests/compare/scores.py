# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How good pools are, by the same measures for every rule."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.measures import measure


class Score(NamedTuple):
    """Measures of a division. All but ``smallest`` are better when they are smaller; ``remote`` is in thousandths of all pool CPUs."""

    overlapping: int
    split: int
    remote: int
    smallest: int
    idle: int
    imbalance: int

    def shown(self, name: str) -> str:
        value = getattr(self, name)
        return f"{value / 10:g} %" if name == "remote" else str(value)


HEADINGS = {
    "overlapping": "overlapping pairs",
    "split": "split cores",
    "remote": "remote CPUs",
    "smallest": "smallest pool",
    "idle": "idle near CPUs",
    "imbalance": "imbalance",
}


def score(groups: Groups, pools: Mapping[Card, int]) -> Score:
    """Return the score of pools, which are masks. A card without a pool has one of no CPUs."""
    quality = measure(groups, pools)
    sizes = [pools.get(card, 0).bit_count() for card in groups.machine.cards]
    return Score(
        overlapping=sum(1 for one, other in combinations(pools.values(), 2) if one & other),
        split=quality["split_cores"],
        remote=round((1 - quality["local"]) * 1000) if quality["local"] is not None else 0,
        smallest=min(sizes),
        idle=mask(quality["idle_near"]).bit_count(),
        imbalance=max(sizes) - min(sizes),
    )


def better(one: Score, other: Score) -> list[str]:
    """Return the measures in which one score is better than another."""
    found = []
    for name in Score._fields:
        gain = getattr(one, name) - getattr(other, name)
        if (gain if name == "smallest" else -gain) > 0:
            found.append(name)
    return found
