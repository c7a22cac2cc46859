# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools in force, changed as little as a host needs whose CPUs, nodes or cards have changed, so that running work stays in place."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.invariants import violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


def adapted(groups: Groups, new: Mapping[Card, int], floor: int) -> dict[Card, int] | None:
    """Return the pools in force without CPUs that may not be used, and with unused ones that the pools of a ``new`` plan have.

    Pools take single cores from others only where they have fewer than ``floor`` CPUs, or where those of a group differ by more than a
    core. None where there is no plan in force for these cards, or where that breaks an invariant.
    """
    machine = groups.machine
    if not new or set(machine.in_force) != set(new):
        return None
    pools = {card: machine.in_force[card] & machine.usable for card in new}
    if pools == new:
        return pools
    if free := union(new.values()) & ~union(pools.values()):
        _give(groups, pools, new, free)
    _level(groups, pools, floor)
    return None if violations(groups, pools, pools) else pools


def _give(groups: Groups, pools: dict[Card, int], new: Mapping[Card, int], free: int) -> None:
    """Give free cores to the smallest of the pools that they are local to, and free threads to the pool that has their core."""
    machine = groups.machine
    owners = {unit: card for card, cpus in pools.items() for unit in machine.units(cpus)} if machine.smt == "cores" else {}
    for unit in machine.units(free):
        cpus = machine.joined([unit])
        if unit in owners:
            pools[owners[unit]] |= cpus & free
            continue
        near = [card for place, cards in groups.alike.items() if groups.local[place] & cpus for card in cards]
        takers = [card for card in near or pools if new[card] & cpus or not near or _has_room(pools, new, near, card)]
        if takers:
            taker = min(takers, key=lambda card: (pools[card].bit_count(), not new[card] & cpus, card.id))
            pools[taker] |= cpus & free


def _has_room(pools: Mapping[Card, int], new: Mapping[Card, int], near: list[Card], card: Card) -> bool:
    return pools[card].bit_count() < max(new[other].bit_count() for other in near)


def _level(groups: Groups, pools: dict[Card, int], floor: int) -> None:
    """Let pools that are too small take cores, one by one, from the largest of their group, or else of the nearest that can spare one."""
    machine = groups.machine
    places = {card: place for place, cards in groups.alike.items() for card in cards}
    needs = {card: max(machine.least(card), floor) for card in pools}
    for _step in range(machine.usable.bit_count()):
        units = {card: machine.cores(cpus).bit_count() for card, cpus in pools.items()}
        largest = {place: max(cards, key=units.__getitem__) for place, cards in groups.alike.items()}
        taker = min(pools, key=lambda card: pools[card].bit_count() - needs[card])
        if pools[taker].bit_count() < needs[taker]:
            donors = [card for card in largest.values() if card is not taker and _spare(groups, pools[card], needs[card])]
        else:
            uneven = ((min(cards, key=units.__getitem__), largest[place]) for place, cards in groups.alike.items())
            taker, *donors = next((pair for pair in uneven if units[pair[1]] - units[pair[0]] > 1), (taker,))
        if not donors:
            return
        place = places[taker]
        donor = min(donors, key=lambda card: (places[card] != place and machine.distance(place, places[card]), -units[card]))
        _take(groups, pools, taker, donor, place)


def _spare(groups: Groups, cpus: int, need: int) -> bool:
    machine = groups.machine
    return cpus.bit_count() - max(machine.joined([unit]).bit_count() for unit in machine.units(cpus)) >= need if cpus else False


def _take(groups: Groups, pools: dict[Card, int], taker: Card, donor: Card, place: int) -> None:
    """Move the last core of a pool to another, if possible one that is local to that."""
    machine = groups.machine
    units = machine.units(pools[donor])
    local = [unit for unit in units if groups.local[place] >> unit & 1]
    cpus = machine.joined([(local or units)[-1]]) & pools[donor]
    pools[donor] &= ~cpus
    pools[taker] |= cpus
