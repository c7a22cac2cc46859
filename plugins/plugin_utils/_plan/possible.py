# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the best division of a host can reach of the goals that :mod:`_plan.goals` lists, without making it."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


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

    ``near`` says that a division with that smallest pool and without remote CPUs is known. None where there are too few CPUs.
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
    usable = groups.machine.usable & ~held
    joined = [(usable, list(groups.alike.values()))] if count else _components(groups, usable)
    uneven = sum(_least_uneven(groups, cpus, list(map(len, cards))) for cpus, cards in joined)
    return Limits(count, distance, borrowing.largest_within(distance, least), uneven, borrowing.alike, False)


def _apart(groups: Groups, held: int) -> Limits | None:
    """Return the limits without remote CPUs where no CPU is local to the cards of several nodes; None elsewhere."""
    machine = groups.machine
    usable = machine.usable & ~held
    components = [(usable, list(groups.alike.values()))] if groups.anywhere else _components(groups, usable)
    if len(components) < len(groups.alike):
        return None
    threads = groups.machine.threads_per_unit
    smallest, uneven, exact = usable.bit_count(), 0, True
    for cpus, [cards] in components:
        units, number = machine.number(cpus), len(cards)
        exact = exact and cpus.bit_count() == units * threads
        smallest = min(smallest, cpus.bit_count() // number, units // number * threads)
        uneven += _least_uneven(groups, cpus, [number])
    return Limits(0, 0, smallest, uneven, exact, exact)


def _components(groups: Groups, usable: int) -> list[tuple[int, list[list[Card]]]]:
    """Return groups of cards that some CPUs are local to several of, with all of their CPUs."""
    components: list[tuple[int, list[list[Card]]]] = []
    for place, cards in groups.alike.items():
        cpus, joined = groups.local[place] & usable, [cards]
        if any(cpus & others for others, _cards in components):
            for others, more in components:
                if cpus & others:
                    cpus, joined = cpus | others, [*more, *joined]
            components = [component for component in components if not component[0] & cpus]
        components.append((cpus, joined))
    return components


def _least_uneven(groups: Groups, cpus: int, numbers: list[int]) -> int:
    """Return the least unevenness of cards, in groups of so many, that have all of these CPUs."""
    units, threads, divisor = groups.machine.number(cpus), groups.machine.threads_per_unit, gcd(*numbers)
    if cpus.bit_count() == units * threads:
        return threads * (units % divisor > 0)
    return int(cpus.bit_count() % divisor > 0)


def sums(remote: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of remote CPUs, and the sum of their distances."""
    count = distance = 0
    for cpus, far in remote:
        count += cpus
        distance += cpus * far
    return count, distance
