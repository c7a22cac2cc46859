# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How good a set of pools of any origin is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.possible import limits, sums


def quality(groups: Groups, pools: Mapping[Card, int], held: int = 0, floor: int = 0) -> dict[str, Any]:
    """Return the quality of pools, as masks: ``{disjoint, whole_cores, local, own_node, remote, balance, smallest, idle, nearest,
    smallest_possible, evenness, idle_near, optimal, gap}``.

    ``disjoint``: no CPU is in two pools. ``whole_cores``: every pool has all usable threads of its cores. ``local``: the share of
    pool CPUs that are local to their card (:func:`local_cpus`). ``own_node``: the share on the card's own NUMA node. ``remote``: the number
    of pool CPUs that are not local. Cards whose node is not known count in none of these, which are None where none is known.
    ``balance``: CPUs of the largest minus the smallest pool. ``smallest``: CPUs of that one. ``idle``: the usable CPUs in no pool, nor
    ``held`` otherwise; ``idle_near``: those that are local to a card. The others: see :func:`_next_to_best`.
    """
    machine = groups.machine
    given = own = near = counted = 0
    sizes = []
    whole = True
    for card, cpus in pools.items():
        given |= cpus
        sizes.append(cpus.bit_count())
        whole = whole and not machine.other_threads(cpus)
        if card.numa in machine.nodes:
            own += (cpus & own_cpus(groups, card)).bit_count()
            near += (cpus & groups.local[card.numa]).bit_count()
            counted += sizes[-1]
    idle = machine.usable & ~given & ~held
    has = {
        "disjoint": sum(sizes) == given.bit_count(),
        "whole_cores": whole,
        "local": round(near / counted, 3) if counted else None,
        "own_node": round(own / counted, 3) if counted else None,
        "remote": counted - near if counted else None,
        "balance": max(sizes, default=0) - min(sizes, default=0),
        "smallest": min(sizes, default=0),
        "idle": text_of(idle),
        "evenness": goals.uneven(groups, pools),
    }
    idle &= goals.local(groups)
    valid = has["disjoint"] and not given & ~machine.usable and (whole or machine.smt == "threads" or not _share_cores(machine, pools))
    known = counted and all(card.numa in machine.nodes and pools.get(card) for card in groups.home)
    best = _next_to_best(groups, pools, has, idle, held, floor) if valid and known else UNKNOWN
    return {**has, "idle_near": text_of(idle), **best}


UNKNOWN: dict[str, Any] = {"nearest": None, "smallest_possible": None, "optimal": None, "gap": {}}
"""The result for pools that cannot be compared with the best possible ones: they overlap, or a NUMA node is not known."""


def _next_to_best(groups: Groups, pools: Mapping[Card, int], has: Mapping[str, Any], idle: int, held: int, floor: int) -> dict[str, Any]:
    """Return ``{nearest, smallest_possible, optimal, gap}``.

    ``nearest``: no division has fewer remote CPUs, each weighted by its distance. ``smallest_possible``: the smallest pool of the best
    division. Both are of divisions whose smallest pool has ``floor`` CPUs, those of the published rule, as far as that is possible; without
    a floor, as many as the smallest of these pools. ``optimal``: no division is better by the goals. ``gap``: how far the pools are from
    the best, by goal. What is not known is None.
    """
    count, distance = sums(goals.remote(groups, pools))
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


def _share_cores(machine: Machine, pools: Mapping[Card, int]) -> bool:
    cores = [machine.cores(cpus) for cpus in pools.values()]
    return union(cores).bit_count() < sum(map(int.bit_count, cores))


def local_share(groups: Groups, pools: Mapping[Card, int]) -> float | None:
    """Return the share of pool CPUs that are local to their card, without those of cards whose NUMA node is not known; None without any."""
    near = [(cpus, local) for card, cpus in pools.items() if (local := local_cpus(groups, card)) is not None]
    counted = sum(cpus.bit_count() for cpus, _local in near)
    return round(sum((cpus & local).bit_count() for cpus, local in near) / counted, 3) if counted else None


def percent(share: float | None) -> str:
    """Return a share as sentences and tables show it: 1 is 100%, and nothing less is."""
    return "not known" if share is None else f"{share * 100:g}%"


def local_cpus(groups: Groups, card: Card) -> int | None:
    """Return the CPUs that are local to a card as a mask; None where its NUMA node is not known.

    Those are the CPUs of its own node, and of the nodes without cards to which no other card is nearer. CPUs on the node of another card
    are remote, even if none of its own may be divided.
    """
    return groups.local[card.numa] if card.numa in groups.machine.nodes else None


def own_cpus(groups: Groups, card: Card) -> int:
    """Return the CPUs of a card's own NUMA node as a mask, none where that is not known."""
    node = groups.machine.nodes.get(card.numa) if card.numa is not None else None
    return node.cpus if node else 0
