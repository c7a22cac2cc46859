# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools of any origin measured: how good they are together, and what each card has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, as_cpulist, cpus_of, mask, mask_of, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine as _machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import options, planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import local_cpus, quality

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology


def machine_of(topology: Topology, cpus: object = None, housekeeping: object = "", smt: object = "cores", min_cpus: object = 1) -> Machine:
    """Return the machine of a topology with the options of a plan. ``ValueError`` as a plan raises it."""
    given = options.Given(cpus=cpus, housekeeping=housekeeping, smt=smt, min_cpus=min_cpus)
    return _machine.read(topology, options.checked(planner.STRATEGIES, given))


def measure(groups: Groups, pools: Mapping[Card, int], held: int = 0) -> dict[str, Any]:
    """Return what ``_plan.quality.quality`` says of pools, as masks, and further measures.

    ``overlap``: CPUs in several pools. ``split_cores``: the number of cores of which a pool has some usable threads and not all.
    ``distance``: mean NUMA distance from the node of a card to its CPUs, over all CPUs of pools; None where none is known. ``caches``:
    mean number of last-level caches of a pool. ``unusable``: CPUs of pools that are offline, not allowed or set aside. ``missing``:
    cards without a pool. ``npus``: for every card ``{id, name, numa, pool, cpus, local, distance, caches}``, counts and means of its
    own.
    """
    machine = groups.machine
    union = overlap = split = 0
    counted = distances = 0
    caches: list[int] = []
    cards = []
    for card in machine.cards:
        cpus = pools.get(card, 0)
        overlap |= union & cpus
        union |= cpus
        split |= machine.cores(machine.other_threads(cpus))
        known, total = _distance(machine, card, cpus)
        counted += known
        distances += total
        near = local_cpus(groups, card)
        of_card = sum(1 for cache in machine.caches if cache & cpus)
        caches += [of_card] * (of_card > 0)
        entry = {
            "id": card.id,
            "name": card.name,
            "numa": card.numa,
            "pool": text_of(cpus),
            "cpus": cpus.bit_count(),
            "local": None if near is None or not cpus else round((cpus & near).bit_count() / cpus.bit_count(), 3),
            "distance": round(total / known, 1) if known else None,
            "caches": of_card or None,
        }
        cards.append(entry)
    return {
        **quality(groups, {card: cpus for card, cpus in pools.items() if cpus}, held),
        "overlap": text_of(overlap),
        "split_cores": split.bit_count(),
        "distance": round(distances / counted, 1) if counted else None,
        "caches": round(sum(caches) / len(caches), 1) if caches else None,
        "unusable": text_of(union & ~machine.usable),
        "missing": [card.name for card in machine.cards if not pools.get(card)],
        "npus": cards,
    }


def _distance(machine: Machine, card: Card, cpus: int) -> tuple[int, int]:
    """Return the number of CPUs whose distance to the card is known, and the sum of these distances."""
    node = machine.nodes.get(NO_NODE if card.numa is None else card.numa)
    known = total = 0
    for other in machine.nodes.values():
        if node and other.id in node.distances:
            count = (other.cpus & cpus).bit_count()
            known += count
            total += count * node.distances[other.id]
    return known, total


def measured(pools: object, topology: Topology, cpus: object = None) -> dict[str, Any]:
    """Return :func:`measure` of a plan, or of cpulists by card: logic ids, or ``npu-0`` and ``gpu-0`` where both kinds have an id.

    ``cpus`` are those that can be divided; without them a plan's own, else all online. Raises ``ValueError`` for a card that the host
    has not, and for what is neither a plan nor such a mapping.
    """
    if not isinstance(pools, Mapping):
        raise ValueError(f"pools: expected a plan, or cpulists by logic id such as {{0: '0-23'}}; got {pools!r}")
    held = 0
    if "npus" in pools:
        try:
            held = mask_of(cpu for entry in pools.get("lost") or () for cpu in cpus_of(mask(entry["pool"])))
            cpus = pools["cpus"] or None if cpus is None else cpus
            pools = {f"{entry['slice'].partition('-')[0]}-{entry['id']}": entry["pool"] for entry in pools["npus"]}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("pools: expected a plan of npu.affinity.plan, with cpus, and npus with id, pool and slice") from error
    machine = machine_of(topology, cpus)
    names = _names(machine)
    masks: dict[Card, int] = {}
    for name, value in pools.items():
        cards = names.get(str(name), [])
        if len(cards) != 1:
            known = ", ".join(sorted(f"{card.kind}-{card.id}" for card in machine.cards)) or "none"
            raise ValueError(f"pools: {name!r} names {len(cards) or 'no'} cards of the host; it has {known}")
        masks[cards[0]] = mask(as_cpulist(value, f"pool of {cards[0].name}"))
    return measure(Groups(machine), masks, held)


def _names(machine: Machine) -> dict[str, list[Card]]:
    """Return the cards by the names that a mapping of pools may use."""
    names: dict[str, list[Card]] = {}
    for card in machine.cards:
        for name in (str(card.id), f"{card.kind}-{card.id}"):
            names.setdefault(name, []).append(card)
    return names
