# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How good a set of pools of any origin is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


def quality(groups: Groups, pools: Mapping[Card, int], held: int = 0, floor: int = 0) -> dict[str, Any]:
    """Return the quality of pools, as masks, as RETURN of filter plan describes it.

    ``held`` are usable CPUs that are not idle although no pool has them; ``floor``: see :func:`_next_to_best`.
    """
    machine, sizes, given = groups.machine, list(map(int.bit_count, pools.values())), union(pools.values())
    whole = not any(map(machine.other_threads, pools.values()))
    on_node = near = counted = 0
    for card, cpus in pools.items():
        if card.numa in machine.nodes:
            on_node += (cpus & machine.own_cpus(card)).bit_count()
            near += (cpus & groups.local[card.numa]).bit_count()
            counted += cpus.bit_count()
    idle = machine.usable & ~given & ~held
    idle_near = idle & goals.local(groups)
    has = {
        "disjoint": sum(sizes) == given.bit_count(),
        "whole_cores": whole,
        "local": round(near / counted, 3) if counted else None,
        "own_node": round(on_node / counted, 3) if counted else None,
        "remote": counted - near if counted else None,
        "balance": max(sizes, default=0) - min(sizes, default=0),
        "smallest": min(sizes, default=0),
        "idle": text_of(idle),
        "evenness": goals.uneven(groups, pools),
        "idle_near": text_of(idle_near),
        **UNKNOWN,
    }
    cores = [] if whole or machine.smt == "threads" else list(map(machine.cores, pools.values()))
    share_cores = union(cores).bit_count() < sum(map(int.bit_count, cores))
    valid = has["disjoint"] and not given & ~machine.usable and not share_cores
    comparable = counted and all(card.numa in machine.nodes and pools.get(card) for card in groups.home)
    return {**has, **_next_to_best(groups, pools, has, idle_near, held, floor)} if valid and comparable else has


UNKNOWN: dict[str, Any] = {"nearest": None, "smallest_possible": None, "optimal": None, "gap": {}}
"""The result for pools that cannot be compared with the best possible ones: they overlap, or a NUMA node is not known."""


def _next_to_best(groups: Groups, pools: Mapping[Card, int], has: Mapping[str, Any], idle: int, held: int, floor: int) -> dict[str, Any]:
    """Return how far the pools are from the best possible ones; what is not known is None.

    ``nearest`` and ``smallest_possible`` are of divisions whose smallest pool has ``floor`` CPUs, those of the published rule, as far as
    that is possible; without a floor, as many as the smallest of these pools.
    """
    count, distance = goals.sums(goals.remote(groups, pools))
    smallest = has["smallest"]
    near = not count and smallest >= floor
    best = limits(groups, smallest if near else floor or smallest, near, held)
    if best is None:
        return UNKNOWN
    gap: dict[str, int] = {}
    if distance > best.distance and best.exact:
        gap |= {"remote": count - best.remote, "distance": distance - best.distance}
    if smallest < best.smallest and best.exact:
        gap["smallest"] = best.smallest - smallest
    if idle:
        gap["idle_near"] = idle.bit_count()
    if has["evenness"] > best.uneven and best.even and not gap:
        gap["evenness"] = has["evenness"] - best.uneven
    if split := goals.split(groups.machine, pools):
        gap["split_cores"] = split
    reached = distance <= best.distance and smallest >= best.smallest and has["evenness"] <= best.uneven
    return {
        "nearest": True if distance <= best.distance else False if best.exact else None,
        "smallest_possible": max(best.smallest, smallest) if best.exact or smallest >= best.smallest else None,
        "optimal": False if gap else True if reached else None,
        "gap": gap,
    }


def local_share(groups: Groups, pools: Mapping[Card, int]) -> float | None:
    """Return the share of pool CPUs that are local to their card, without those of cards whose NUMA node is not known; None without any."""
    near = [(cpus, local) for card, cpus in pools.items() if (local := groups.local_cpus(card)) is not None]
    counted = sum(cpus.bit_count() for cpus, _local in near)
    return round(sum((cpus & local).bit_count() for cpus, local in near) / counted, 3) if counted else None


def percent(share: float | None) -> str:
    """Return a share as sentences and tables show it: 1 is 100%, and nothing less is."""
    return "not known" if share is None else f"{share * 100:g}%"


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


@lru_cache(maxsize=8)
def limits(groups: Groups, floor: int, near: bool, held: int = 0) -> Limits | None:
    """Return the limits of divisions without the CPUs ``held``, whose smallest pool has ``floor`` CPUs as far as that is possible.

    ``near`` says that a division with that smallest pool and without remote CPUs is known. None where there are too few CPUs.
    """
    if near and (apart := _apart(groups, held)):
        return apart
    borrowing = Borrowing(groups, held=held)
    least = min(floor, borrowing.largest())
    remote = [] if near else borrowing.least_remote(least)
    if remote is None:
        return None
    count, distance = goals.sums(remote)
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
