# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips by rings, cards, modules and meshes, and the ways of choosing among them that several products share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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
