# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a topology to a plan: which CPUs each NPU gets, for which roles, and why.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils import _applied, _roles
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask, mask_of, text_in_order, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._invariants import violations
from ansible_collections.npu.affinity.plugins.plugin_utils._machine import Card, Machine, cards_named, memory_nodes, read
from ansible_collections.npu.affinity.plugins.plugin_utils._options import Options, checked
from ansible_collections.npu.affinity.plugins.plugin_utils._quality import local_cpus, quality
from ansible_collections.npu.affinity.plugins.plugin_utils._repair import repaired
from ansible_collections.npu.affinity.plugins.plugin_utils.strategies import Pools, discover

STRATEGIES = discover()
FOR_ALL_KINDS = "even_split"
"""The strategy that divides over NPUs and GPUs, or over different families, at once."""
OTHERWISE = "topo_affinity"
"""The strategy of families that no strategy names."""


def plan(
    topology: Mapping[str, Any],
    strategy: str = "auto",
    cpus: str | int | Iterable[int] | None = None,
    housekeeping: str | int | Iterable[int] | None = "",
    npus: Iterable[int] | str | None = None,
    smt: str = "cores",
    min_cpus: int = 5,
    repair: bool = True,
    replan: bool = False,
) -> dict[str, Any]:
    """Return the plan of a host, for the fact ``npu_affinity_plan``.

    Raises ``ValueError`` with a sentence when an option is wrong, when there are too few CPUs, and with ``repair: false`` when the
    published rule fails. The topology is not changed.
    """
    options = checked(STRATEGIES, strategy, cpus, housekeeping, npus, smt, min_cpus, repair, replan)
    machine = read(topology, options)
    asked = _asked(machine, options)
    name, reason = _choose(machine, options)
    groups = Groups(machine, STRATEGIES[name].EVERYBODY)
    kept = _applied.keep(machine, topology.get("applied"), options)
    if kept.entries is None:
        made, mended = _pools(groups, name, options, asked)
        entries, moved = _entries(machine, made, options, asked)
        pools = made.masks
        broken = [] if options.repair else violations(groups, pools, asked)
        if made.strategy != name:
            reason = f"{reason[:-1]}, but npu-smi printed no affinity, which leaves {made.strategy}."
        name, mended, warnings = made.strategy, mended + moved, made.warnings
    else:
        entries, mended, broken, warnings = kept.entries, [], [], []
        pools = {card: mask(entry["pool"]) for card, entry in entries.items()}
        name = topology["applied"].get("strategy") or name
        reason = "Cards are missing, and the others keep what the plan in force gave them."
    result = quality(groups, pools, mask_of(cpu for entry in kept.lost for cpu in cpus_of(mask(entry["pool"]))))
    if options.repair and kept.entries is None and result["local"] < 1:
        warnings = [*warnings, _far(groups, pools, name, result["local"])]
    return {
        "schema": 1,
        "strategy": name,
        "requested": options.strategy,
        "reason": reason,
        "cpus": text_of(machine.usable),
        "housekeeping": text_of(machine.housekeeping),
        "npus": [entries[card] for card in machine.cards if card in asked and card in entries],
        "repaired": mended,
        "warnings": [*machine.warnings, *kept.warnings, *warnings],
        "quality": result,
        "options": options.record(),
        "lost": kept.lost,
        "violations": [violation.sentence for violation in broken],
    }


def _choose(machine: Machine, options: Options) -> tuple[str, str]:
    """Return the strategy and one sentence why. ``ValueError`` where one was asked for that cannot plan NPUs and GPUs together."""
    kinds = {card.kind for card in machine.cards}
    if options.strategy != "auto":
        if len(kinds) > 1 and options.strategy != FOR_ALL_KINDS:
            raise ValueError(
                f"strategy: {options.strategy} cannot divide CPUs over {cards_named(machine.cards)} at once; "
                f"use auto or {FOR_ALL_KINDS}, which treats all cards of a NUMA node alike"
            )
        return options.strategy, f"Strategy {options.strategy} was asked for."
    families = sorted({"gpu" if card.kind == "gpu" else card.family for card in machine.cards})
    names = {next((name for name, known in STRATEGIES.items() if family in known.FAMILIES), OTHERWISE) for family in families}
    if not names:
        return FOR_ALL_KINDS, "The host has no NPU and no GPU."
    listed = " and ".join(family or "unknown" for family in families)
    if len(names) > 1:
        return FOR_ALL_KINDS, f"The host has cards of the families {listed}, and only {FOR_ALL_KINDS} divides over all of them at once."
    name = names.pop()
    return name, f"{name} is the rule for the family {listed}."


def _asked(machine: Machine, options: Options) -> frozenset[Card]:
    """Return the cards of the option ``npus``."""
    known = {card.id for card in machine.cards}
    for number in options.npus or ():
        if number not in known:
            raise ValueError(
                f"Invalid NPU id {number}, total_npus={len(machine.cards)}. The option npus has it; the host has "
                f"{cards_named(machine.cards) or 'none'}"
            )
    return frozenset(card for card in machine.cards if options.npus is None or card.id in options.npus)


def _pools(groups: Groups, name: str, options: Options, asked: frozenset[Card]) -> tuple[Pools, list[str]]:
    """Return the pools of a strategy, mended or as published, and what was mended."""
    if not groups.machine.cards:
        return Pools(name, {}), []
    if options.repair:
        _require_cpus_of_their_own(groups, asked)
        return repaired(groups, name, STRATEGIES[name], asked)
    return STRATEGIES[name].pools(groups.machine, asked), []


def _require_cpus_of_their_own(groups: Groups, asked: Collection[Card]) -> None:
    without = [card for card in groups.machine.cards if card in asked and card not in groups.home]
    if without:
        raise ValueError(
            f"None of the CPUs on the NUMA nodes of {cards_named(without)} may be divided; that is {text_of(groups.machine.usable)}. "
            "Allow some of them with cpus, keep fewer with housekeeping, leave these cards out with npus, or use strategy global_slice, "
            "which does not look at nodes"
        )


def _entries(
    machine: Machine, made: Pools, options: Options, asked: Collection[Card]
) -> tuple[dict[Card, dict[str, Any]], list[str]]:
    """Return the entries of the plan for the cards asked for, and a sentence where roles left their published positions.

    The published memory node is that of the first CPU of a pool; a repaired plan has all nodes of the pool.
    """
    entries = {}
    moved = []
    for card, pool in made.pools.items():
        if card not in asked:
            continue
        published = roles = _roles.split(card, pool, options.min_cpus)
        if options.repair and options.smt == "cores" and machine.core_of:
            roles = _roles.spread(pool, published, machine.core_of)
        if roles != published:
            moved.append(card)
        entries[card] = {
            "id": card.id,
            "pci": card.pci,
            "pool": text_in_order(pool),
            **{role: text_in_order(cpus) for role, cpus in roles._asdict().items()},
            "mems": memory_nodes(machine, made.masks[card] if options.repair else 1 << pool[0]),
            "slice": card.slice,
        }
    if not moved:
        return entries, []
    first = entries[moved[0]]
    return entries, [
        f"Published roles: CPUs for irq, acl and release of {cards_named(moved)} are threads of the same cores. Instead they have cores of "
        f"their own, for {moved[0].name} irq {first['irq']}, acl {first['acl']} and release {first['release']}."
    ]


def _far(groups: Groups, pools: Mapping[Card, int], name: str, local: float) -> str:
    far = [card for card, cpus in pools.items() if (near := local_cpus(groups, card)) is not None and cpus & ~near]
    return f"{name} gives {cards_named(far)} CPUs of other NUMA nodes (local: {local}); {FOR_ALL_KINDS} keeps every card on its own."
