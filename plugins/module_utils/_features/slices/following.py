# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the slices of the system have while housekeeping follows the workloads. Nothing here looks at a host.

They always have the floor. While no workload holds a pool, they also have its CPUs. Taking CPUs away is never delayed, and giving them is
bounded: each change moves all work of the system.
"""

from __future__ import annotations

from typing import AbstractSet, Iterable, Mapping, NamedTuple

PER_MINUTE = 4
"""How often CPUs are given within a minute."""
MINUTE = 60.0


class Sets(NamedTuple):
    """``floor``: what the system always has; ``most``: what it has besides while no workload runs."""

    floor: AbstractSet[int]
    most: AbstractSet[int]

    def with_all(self, held: AbstractSet[int]) -> set[int]:
        """Return all that the system may have while workloads hold some CPUs."""
        return set(self.floor | (self.most - held))

    def left_of(self, given: AbstractSet[int], held: AbstractSet[int]) -> set[int]:
        """Return what the system may keep of what it was given."""
        return set(self.floor | (given & self.with_all(held)))


def decided(sets: Sets, given: Mapping[str, AbstractSet[int]], held: AbstractSet[int], may_give: bool) -> dict[str, set[int]]:
    """Return ``{unit: CPUs}`` of the units that are to have others than they were ``given``, those that lose some first.

    ``held``: the CPUs of all pools that workloads hold. Without ``may_give`` no unit gets more than the floor and what it has.
    """
    wanted = {unit: sets.with_all(held) if may_give else sets.left_of(found, held) for unit, found in given.items()}
    changed = [unit for unit in given if wanted[unit] != given[unit]]
    return {unit: wanted[unit] for unit in sorted(changed, key=lambda unit: given[unit] <= wanted[unit])}


def whole_pools(pools: Iterable[AbstractSet[int]], cpus: AbstractSet[int]) -> set[int]:
    """Return the CPUs of all pools of which some are held: what shares a pool shares its caches."""
    return set(cpus).union(*(pool for pool in pools if pool & cpus))


class Gifts:
    """When the system was given CPUs. Times are those of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def are_over(self, now: float) -> bool:
        """Whether CPUs were given so often within a minute that the system waits for more."""
        return len(self._times) >= PER_MINUTE and now - self._times[-PER_MINUTE] < MINUTE

    def note(self, now: float) -> None:
        self._times = (self._times + [now])[-PER_MINUTE:]
