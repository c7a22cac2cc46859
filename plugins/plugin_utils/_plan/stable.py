# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools in force, changed as little as a host needs whose CPUs, nodes or cards have changed, so that running work stays in place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.goals import UNEQUAL_CORES, violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card


def adapted(groups: Groups, new: Mapping[Card, int], floor: int) -> dict[Card, int] | None:
    """Return the pools in force without CPUs that may not be used, and with those of a ``new`` plan that could not be used before.

    Pools take single cores from others only where they have fewer than ``floor`` CPUs (or, if that cannot be met, fewer than the smallest
    pool of the ``new`` plan), or where those of a group differ by more than a core. None where there is no plan in force for these
    cards, or where that breaks an invariant.
    """
    machine = groups.machine
    if not new or set(machine.in_force) != set(new):
        return None
    remaining = {card: machine.in_force[card] & machine.usable for card in new}
    if remaining == new:
        return remaining
    free = union(new.values()) & ~union(remaining.values())
    back = free & ~machine.divided
    smallest = min(map(int.bit_count, new.values()))
    for least, unused in product(dict.fromkeys([floor, min(floor, smallest)]), dict.fromkeys([back, 0])):
        needs = {card: max(machine.least(card), least) for card in remaining}
        pools = dict(remaining)
        _give(groups, pools, new, unused, needs)
        _give(groups, pools, {}, free & ~unused, needs)
        _level(groups, pools, needs)
        if all(broken.kind == UNEQUAL_CORES for broken in violations(groups, pools, pools)):
            return pools
    return None


def _give(groups: Groups, pools: dict[Card, int], new: Mapping[Card, int], free: int, needs: Mapping[Card, int]) -> None:
    """Give free cores to pools that are too small, or else to the smallest that they are local to; free threads to that with their core.

    Without pools of a ``new`` plan, only pools that are too small get any.
    """
    machine = groups.machine
    owners = {unit: card for card, cpus in pools.items() for unit in machine.each_unit(cpus)} if machine.smt == "cores" else {}
    for unit in machine.each_unit(free):
        cpus = machine.joined(1 << unit)
        if unit in owners and new:
            pools[owners[unit]] |= cpus & free
            continue
        near = [card for place, cards in groups.alike.items() if groups.local[place] & cpus for card in cards]
        small = [card for card in pools if pools[card].bit_count() < needs[card]]
        takers = [card for card in small if card in near] or small
        if not takers and new:
            takers = [card for card in near or new if pools[card].bit_count() < max(new[other].bit_count() for other in near or [card])]
        if takers and not (unit in owners and owners[unit] not in takers):
            taker = min(takers, key=lambda card: (pools[card].bit_count(), not new.get(card, 0) & cpus, card.id))
            pools[taker] |= cpus & free


def _level(groups: Groups, pools: dict[Card, int], needs: Mapping[Card, int]) -> None:
    """Let pools that are too small take cores, one by one, from the largest of their group, or else of the nearest that can spare one."""
    machine = groups.machine
    places = {card: place for place, cards in groups.alike.items() for card in cards}
    for _step in range(machine.usable.bit_count()):
        units = {card: machine.number(cpus) for card, cpus in pools.items()}
        largest = {place: max(cards, key=units.__getitem__) for place, cards in groups.alike.items()}
        smallest = {place: min(cards, key=units.__getitem__) for place, cards in groups.alike.items()}
        taker = min(pools, key=lambda card: pools[card].bit_count() - needs[card])
        if pools[taker].bit_count() < needs[taker]:
            donors = [card for card in largest.values() if card is not taker and _spare(groups, pools[card], needs[card])]
        else:
            uneven = [place for place in largest if units[largest[place]] - units[smallest[place]] > 1][:1]
            taker, donors = smallest[uneven[0]] if uneven else taker, [largest[place] for place in uneven]
        if not donors:
            return
        place = places[taker]
        donor = min(donors, key=lambda card: (places[card] != place and machine.distance(place, places[card]), -units[card]))
        if not (spare := _spare(groups, pools[donor], needs[donor])):
            return
        local = [unit for unit in spare if groups.local[place] >> unit & 1] or spare
        cpus = machine.joined(1 << max(local, key=lambda unit: (machine.joined(1 << unit).bit_count(), unit))) & pools[donor]
        pools[donor] &= ~cpus
        pools[taker] |= cpus


def _spare(groups: Groups, cpus: int, need: int) -> list[int]:
    """Return the units of a pool of which it can give one away."""
    machine, size = groups.machine, cpus.bit_count()
    return [unit for unit in machine.each_unit(cpus) if size - machine.joined(1 << unit).bit_count() >= need]
