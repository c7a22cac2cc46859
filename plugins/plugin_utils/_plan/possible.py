# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the best division of a host can reach of the goals that :mod:`_plan.goals` lists, without making it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups


class Limits(NamedTuple):
    """What no division exceeds: remote CPUs with the sum of their distances, the smallest pool, and unevenness.

    ``exact`` says that a division reaches the limits, ``even`` that one reaches the least unevenness, too.
    """

    remote: int
    distance: int
    smallest: int
    uneven: int
    exact: bool
    even: bool


def limits(groups: Groups, floor: int, near: bool, held: int = 0) -> Limits | None:
    """Return the limits of divisions without the CPUs ``held``, whose smallest pool has ``floor`` CPUs as far as that is possible.

    ``near`` says that a division with such a smallest pool and without remote CPUs is known. None where there are too few CPUs.
    """
    key = (floor if not near else 0, near, held)
    if key not in groups.limits:
        groups.limits[key] = _limits(groups, floor, near, held)
    found: Limits | None = groups.limits[key]
    return found


def _limits(groups: Groups, floor: int, near: bool, held: int) -> Limits | None:
    if near and (found := _apart(groups, held)):
        return found
    borrowing = Borrowing(groups, held=held)
    least = min(floor, borrowing.largest())
    remote = [] if near else borrowing.least_remote(least)
    if remote is None:
        return None
    count, distance = sums(remote)
    return Limits(count, distance, borrowing.largest_within(distance, least), 0, borrowing.alike, False)


def _apart(groups: Groups, held: int) -> Limits | None:
    """Return the limits without remote CPUs where no CPU is local to the cards of several nodes; None elsewhere."""
    machine = groups.machine
    usable = machine.usable & ~held
    local = {place: groups.local[place] & usable for place in groups.alike}
    if union(local.values()).bit_count() < sum(map(int.bit_count, local.values())):
        return None
    threads = machine.threads_per_core if machine.smt == "cores" else 1
    smallest, uneven, exact = usable.bit_count(), 0, True
    for place, cards in groups.alike.items():
        cpus, number = local[place].bit_count(), len(cards)
        units = machine.cores(local[place]).bit_count() if threads > 1 else cpus
        alike = cpus == units * threads
        exact = exact and alike
        smallest = min(smallest, cpus // number, units // number * threads)
        uneven += threads * (units % number > 0) if alike else cpus % number > 0
    return Limits(0, 0, smallest, uneven, exact, exact)


def sums(remote: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of remote CPUs, and the sum of their distances."""
    count = distance = 0
    for cpus, far in remote:
        count += cpus
        distance += cpus * far
    return count, distance
