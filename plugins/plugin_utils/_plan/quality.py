# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How good a set of pools of any origin is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.borrowing import Borrowing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


def quality(groups: Groups, pools: Mapping[Card, int], held: int = 0, floor: int = 0) -> dict[str, Any]:
    """Return the quality of pools, as masks: ``{disjoint, whole_cores, local, own_node, remote, balance, smallest, idle,
    optimal, gap}``.

    ``disjoint``: no CPU is in two pools. ``whole_cores``: every pool has all usable threads of its cores. ``local``: the share of
    pool CPUs that are local to their card (:func:`local_cpus`). ``own_node``: the share on the card's own NUMA node. Cards whose node is
    not known count in neither. ``remote``: the number of pool CPUs that are not local. ``balance``: CPUs of the largest minus the smallest
    pool. ``smallest``: CPUs of that one. ``idle``: the usable CPUs in no pool, nor ``held`` otherwise. ``optimal`` and ``gap``: see
    :func:`_gap`, to which ``floor`` belongs.
    """
    machine = groups.machine
    union = own = counted = 0
    sizes = []
    whole = True
    for card, cpus in pools.items():
        union |= cpus
        sizes.append(cpus.bit_count())
        whole = whole and not machine.other_threads(cpus)
        if card.numa in machine.nodes:
            own += (cpus & own_cpus(groups, card)).bit_count()
            counted += sizes[-1]
    disjoint = sum(sizes) == union.bit_count()
    remote = list(goals.remote(groups, pools))
    gap = (
        _gap(groups, pools, remote, held, floor)
        if disjoint and not union & ~machine.usable and (whole or machine.smt == "threads")
        else None
    )
    return {
        "disjoint": disjoint,
        "whole_cores": whole,
        "local": local_share(groups, pools),
        "own_node": round(own / counted, 3) if counted else 1.0,
        "remote": sum(count for count, _distance in remote),
        "balance": max(sizes, default=0) - min(sizes, default=0),
        "smallest": min(sizes, default=0),
        "idle": text_of(machine.usable & ~union & ~held),
        "optimal": None if gap is None else not gap,
        "gap": gap or {},
    }


def _gap(groups: Groups, pools: Mapping[Card, int], remote: list[tuple[int, int]], held: int, floor: int) -> dict[str, int] | None:
    """Return how far pools are from the best possible, {} where none are better, None where that is not known.

    ``smallest``: how many CPUs the smallest pool lacks of ``floor``, that of the published rule, as far as all pools can have it. Else
    ``remote`` and ``distance``: how many CPUs more are remote than with another division with as large a smallest pool, and by how much
    their distances add up to more.
    """
    known = all(card.numa in groups.machine.nodes for card in groups.home)
    if not known or {card for card, cpus in pools.items() if cpus} != set(groups.home):
        return None
    smallest = min(map(int.bit_count, pools.values()), default=0)
    if not remote and smallest >= floor:
        return {}
    borrowing = Borrowing(groups, held=held)
    if (lacking := min(floor, borrowing.largest()) - smallest) > 0:
        return {"smallest": lacking} if borrowing.alike else None
    best = borrowing.least_remote(smallest)
    if best is None:
        return None
    (count, distance), (least, nearest) = (_sums(remote), _sums(best))
    if distance > nearest:
        return {"remote": count - least, "distance": distance - nearest} if borrowing.alike else None
    return {}


def _sums(remote: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(count for count, _distance in remote), sum(count * distance for count, distance in remote)


def local_share(groups: Groups, pools: Mapping[Card, int]) -> float:
    """Return the share of pool CPUs that are local to their card, without those of cards whose NUMA node is not known."""
    near = [(cpus, local) for card, cpus in pools.items() if (local := local_cpus(groups, card)) is not None]
    counted = sum(cpus.bit_count() for cpus, _local in near)
    return round(sum((cpus & local).bit_count() for cpus, local in near) / counted, 3) if counted else 1.0


def percent(share: float) -> str:
    """Return a share as sentences and tables show it: 1 is 100%, and nothing less is."""
    return f"{share * 100:g}%"


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
