# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a topology to a plan: which CPUs each NPU gets, for which roles, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import other_architecture, why_unbound
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import noun
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import REMOTE
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_in_order, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import keep, listing
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import roles as _roles
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import warnings as _warnings
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import UNREACHABLE, Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.goals import Violation, violations
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named, memory, read
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import PUBLISHED, Given, Options, checked
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import quality
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.repair import repaired
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, cluster, discover
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import ENGINE_VERSION, WORKERS, former_rule, taken

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, PlanEntry, Topology

STRATEGIES = discover()
FOR_ALL_KINDS = "even_split"
"""The strategy that divides over NPUs and GPUs, or over different families, at once."""
DEFAULT_STRATEGY = "topo_affinity"
"""The strategy of families that no strategy names."""


POLL_SHARED = Sentence(
    "NPU_POLL_SHARED",
    "No CPU is left for the poll threads of the host (uvb_poll_window), which run on node 0 without CPU 0. They are not moved "
    "and may use CPUs of the pools. Keep CPUs of that node for the system with npu_affinity_housekeeping.",
)


class Division(NamedTuple):
    """What the cards get: pools as masks, entries of the plan, and in words what was repaired, what to look at and what is broken.

    ``floor`` is the smallest pool of the published rule, 0 where it has none.
    """

    strategy: str
    reason: str
    pools: Mapping[Card, int]
    entries: Mapping[Card, PlanEntry]
    repaired: list[str]
    warnings: list[Sentence]
    violations: list[Violation]
    floor: int = 0


def plan(topology: Topology, *args: Any, **arguments: Any) -> Plan:
    """Return the plan of a host: the fact ``npu_affinity_plan``. The arguments are the fields of :class:`Given`.

    With workers that bind themselves (``bound_by``), the pools are as published, whatever ``repair`` says. Raises ``ValueError`` with a
    sentence when an option is wrong, when there are too few CPUs, and when a published rule that is not repaired fails. The topology is
    not changed.
    """
    options = checked(STRATEGIES, Given(*args, **arguments))
    machine = read(topology, options)
    applied = listing.restrict(machine, topology, options)
    beside_workers = bool(machine.cards) and options.bound_by == WORKERS and not why_unbound(topology)
    if beside_workers:
        options = _as_published(machine, options)
    elif machine.cards and options.engine_version:
        machine.warn("NPU_NO_EFFECT", f"{ENGINE_VERSION} has no effect: the workers of this host do not bind themselves.")
        options = options._replace(engine_version=None)
    if options.repair:
        keep.spare_housekeeping(machine, applied, options)
    kept = _kept_of(machine, topology, applied, options)
    requested = _requested(machine, options, kept)
    hidden = listing.join(machine, topology, kept, options) if kept.entries is None and options.repair else []
    machine.in_force = keep.in_force(machine, applied, options)
    if machine.in_force and applied and applied.get("cpus"):
        machine.divided = mask(applied["cpus"])
    unbound = options.strategy == "auto" and {card.kind for card in machine.cards} == {"npu"} and other_architecture(topology)
    name, reason = _choose(machine, options, unbound or "")
    groups = Groups(machine, REMOTE if unbound else UNREACHABLE)
    if kept.entries is not None:
        division = _kept(kept.entries, (applied or {}).get("strategy") or name, beside_workers)
    elif beside_workers:
        division = _followed(groups, name, reason, options, requested)
    else:
        division = _divided(groups, name, reason, options, requested, hidden)
    entries = division.entries
    for card, number in kept.numbers.items() if kept.entries is None else ():
        if card in entries:
            entries[card]["slice"] = f"{card.kind}-{number}.slice"
    functions = {card.pci for card in hidden}
    lost: list[PlanEntry] = [entry for entry in kept.lost if entry["pci"] not in functions]
    lost += [{**entries[card], "unlisted": True} for card in hidden if card in entries]
    warnings = [*machine.warnings, *kept.warnings, *listing.sentences(lost), *division.warnings]
    if options.engine_version:
        warnings += taken(_by_workload(machine, division, options, kept), division.strategy, options.engine_version)
    irqs = {card: entry["irq"] for card, entry in entries.items()}
    warnings += _warnings.of_pools(groups, division.pools, division.strategy, irqs, options.repair and kept.entries is None)
    poll = None
    if any(card.family == "a5" for card in machine.cards) or ((applied or {}).get("poll") and not machine.cards):
        # The published CPUs that no pool has. If all 950s of a host are lost, the plan in force still has such CPUs.
        reserved = union([*division.pools.values(), *(mask(entry["pool"]) for entry in kept.lost)])
        poll = text_of(cluster.poll_cpus(machine) & ~reserved)
    if poll == "" and options.repair and not other_architecture(topology):
        warnings.append(POLL_SHARED)
    made: Plan = {
        "schema": 1,
        "strategy": division.strategy,
        "requested": options.strategy,
        "reason": division.reason,
        "cpus": text_of(machine.usable),
        "housekeeping": text_of(machine.housekeeping),
        "npus": [entries[card] for card in machine.cards if card in requested and card in entries],
        "repaired": division.repaired,
        "warnings": list(warnings),
        "quality": quality(groups, division.pools, union(mask(entry["pool"]) for entry in lost), division.floor),
        "options": options.record(),
        "lost": lost,
        "violations": [f"{violation.sentence}." for violation in division.violations],
    }
    if poll is not None:
        made["poll"] = poll
    if options.follow:
        made["follow"] = True
    return made


def _kept_of(machine: Machine, topology: Topology, applied: Plan | None, options: Options) -> keep.Kept:
    """Return what remains of the plan in force, and give the machine the roles of workloads."""
    functions = [device["pci"] for device in topology.get("unlisted") or ()]
    kept = keep.keep(machine, applied, options, functions)
    if any(workload.roles for workload in options.workloads):  # they name NPUs by the numbers of their slices, which keep() knows
        machine.roles_of = _roles.of_workloads(machine, options, kept.numbers)
        kept = keep.keep(machine, applied, options, functions)
    return kept


def _by_workload(machine: Machine, division: Division, options: Options, kept: keep.Kept) -> dict[str, list[tuple[str, str]]]:
    """Return the names of the NPUs of workloads with their pools, in the order of logic ids; under '' the NPUs of no workload."""
    members = {workload.name: _roles.cards_of(machine, workload, kept.numbers) for workload in options.workloads}
    assigned = {card for cards in members.values() for card in cards}
    members[""] = [card for card in machine.cards if card not in assigned]
    entries = division.entries
    return {name: [(card.name, entries[card]["pool"]) for card in cards if card in entries] for name, cards in members.items()}


def _as_published(machine: Machine, options: Options) -> Options:
    """Return the options next to workers that bind themselves: they take the rule of the family, its roles, and never a repair."""
    rule, _reason = _choose(machine, options._replace(strategy="auto"))
    sizes = next((sizes for sizes in options.sizes if sizes != PUBLISHED), PUBLISHED)
    least = Given().min_cpus
    for setting, value, allowed, what, instead in (
        ("strategy", options.strategy, ("auto", rule), "is not the rule", f"which is {rule} on this host; use auto"),
        ("roles", sizes, (PUBLISHED,), "are not the roles", f"which are {PUBLISHED}; leave npu_affinity_roles out"),
        ("min_cpus", options.min_cpus, (least,), "is not the least number of CPUs", f"which is {least}; leave npu_affinity_min_cpus out"),
    ):
        if value not in allowed:
            raise coded_error(
                "NPU_WORKERS_CONFLICT",
                f"npu_affinity_{setting}: {value} {what} of workers that bind themselves (npu_affinity_bound_by: workers), {instead}, "
                "or use npu_affinity_bound_by: host with in-process binding off",
            )
    return options._replace(repair=False)


def _followed(groups: Groups, name: str, reason: str, options: Options, requested: frozenset[Card]) -> Division:
    """Return a published division next to the workers that make it: what is wrong with it is theirs, and to be looked at."""
    instead = "use npu_affinity_bound_by: host, with in-process binding off"
    try:
        division = _divided(groups, name, reason, options, requested, ())
        if not division.entries:
            raise ValueError(" ".join(division.warnings))
    except ValueError as error:
        raise coded_error(
            "NPU_WORKERS_CONFLICT",
            f"npu_affinity_bound_by: workers, and these will bind nothing on this host: {str(error).rstrip('.')}; {instead}",
        ) from error
    broken = [f"The workers bind themselves, and this is what they do: {violation.sentence}." for violation in division.violations]
    remarks = [Sentence("NPU_RULE_FAILS", text) for text in broken] + _warnings.remote(groups, division.pools, division.strategy)
    if remarks:
        remarks.append(Sentence("NPU_RULE_FAILS", f"CPUs that the workers divide themselves are not repaired: to have that, {instead}."))
    return division._replace(warnings=[*division.warnings, *remarks], violations=[])


def _choose(machine: Machine, options: Options, unbound: str = "") -> tuple[str, str]:
    """Return the strategy and one sentence why. ``ValueError`` where the one requested cannot plan NPUs and GPUs together.

    ``unbound`` is the architecture of a host on which vLLM-Ascend binds nothing.
    """
    kinds = {card.kind for card in machine.cards}
    if options.strategy != "auto":
        if len(kinds) > 1 and options.strategy != FOR_ALL_KINDS:
            raise ValueError(
                f"strategy: {options.strategy} cannot divide CPUs over {cards_named(machine.cards)} at once; "
                f"use auto or {FOR_ALL_KINDS}, which treats all cards of a NUMA node alike"
            )
        return options.strategy, f"Strategy {options.strategy} was requested."
    families = sorted({"gpu" if card.kind == "gpu" else card.family for card in machine.cards})
    names = {next((name for name, strategy in STRATEGIES.items() if family in strategy.families), DEFAULT_STRATEGY) for family in families}
    if not names:
        return FOR_ALL_KINDS, "No NPU and no GPU of the host is known."
    if unbound:
        return FOR_ALL_KINDS, f"vLLM-Ascend binds nothing on {unbound}, and {FOR_ALL_KINDS} keeps to the CPUs near each card."
    listed = " and ".join(family or "unknown" for family in families)
    if len(names) > 1:
        return FOR_ALL_KINDS, f"The host has cards of the families {listed}, and only {FOR_ALL_KINDS} divides over all of them at once."
    name = former_rule(rule := names.pop(), options.engine_version)
    if name != rule:
        return name, f"{name} is the rule of vLLM-Ascend {options.engine_version} for the family {listed}."
    return name, f"{name} is the rule for the family {listed}."


def _requested(machine: Machine, options: Options, kept: keep.Kept) -> frozenset[Card]:
    """Return the cards of the option ``npus``, which names them by the numbers of their slices."""
    numbers = {card: kept.numbers.get(card, card.id) for card in machine.cards}
    valid = {*numbers.values(), *(kind_and_number(entry["slice"])[1] for entry in kept.lost)}
    of = noun({"kind": card.kind, "id": card.id} for card in machine.cards)
    for number in options.npus or ():
        if number not in valid:
            raise coded_error(
                "NPU_UNKNOWN_NPU",
                f"Invalid {of} id {number}, total_npus={len(machine.cards)}. The option npus has it; the host has "
                f"{cards_named(machine.cards) or 'none'}",
            )
    return frozenset(card for card in machine.cards if options.npus is None or numbers[card] in options.npus)


def _kept(entries: Mapping[Card, PlanEntry], strategy: str, beside_workers: bool) -> Division:
    pools = {card: mask(entry["pool"]) for card, entry in entries.items()}
    overlap = Sentence(
        "NPU_WORKERS_OVERLAP",
        f"Workers that bind themselves and start again divide the CPUs over the {len(entries)} NPUs that are left; "
        "npu_affinity_replan: true then binds the interrupts by the same pools.",
    )
    warnings = [overlap] if beside_workers and entries else []
    return Division(strategy, "Cards are missing, and the others keep what the plan in force gave them.", pools, entries, [], warnings, [])


def _divided(groups: Groups, name: str, reason: str, options: Options, requested: frozenset[Card], hidden: Iterable[Card]) -> Division:
    """Return what a strategy gives to the cards, repaired or as published; ``hidden`` ones take part, but need not get anything."""
    machine = groups.machine
    changes: list[str] = []
    if not machine.cards:
        made = Pools(name, {})
    elif options.repair:
        made, changes = repaired(groups, name, STRATEGIES[name], requested, options.strategy == "auto")
    else:
        made = STRATEGIES[name].pools(machine, requested)
    entries, moved, unmet = _entries(machine, made, options, requested.union(hidden))
    if made.strategy != name:
        reason = f"{reason[:-1]}, but npu-smi printed no affinity, which leaves {made.strategy}."
    if made.closer:
        reason = f"{reason[:-1]}, but {made.closer[0].lower()}{made.closer[1:].replace('. Instead', '; instead')}."
    if made.kept:
        reason = f"{reason[:-1]}; {made.kept}."
    broken = [] if options.repair else violations(groups, made.masks, requested)
    return Division(made.strategy, reason, made.masks, entries, [*changes, *moved], [*made.warnings, *unmet], broken, made.floor)


def _entries(
    machine: Machine, made: Pools, options: Options, requested: Collection[Card]
) -> tuple[dict[Card, PlanEntry], list[str], list[Sentence]]:
    """Return the entries of the plan for the cards requested, with what was repaired of their roles and what could not be.

    The published memory node is that of the first CPU of a pool; a repaired plan has all nodes of the pool.
    """
    entries: dict[Card, PlanEntry] = {}
    moved, sharing_cores, small = [], [], []
    whole = options.repair or options.bound_by == WORKERS
    for card, cpus in made.masks.items():
        if card not in requested:
            continue
        pool = made.cpus(card)
        roles, elsewhere, sharing = _roles.arranged(machine, card, pool, options.min_cpus, options.repair)
        if roles.irq and options.repair and len(pool) <= sum(machine.sizes(card)):
            small.append(card)
        if sharing:
            sharing_cores.append(card)
        if elsewhere:
            moved.append(card)
        nodes = memory(machine, cpus if whole or not pool else 1 << pool[0], card.pci, located=not whole or machine.knows(card))
        text = text_in_order(pool) if card in made.printed else text_of(cpus)
        entries[card] = _roles.entry(machine, card, text, roles, nodes, card.slice)
    changes = []
    if moved:
        first = entries[moved[0]]
        kv = f", kv {first['kv']}" if first.get("kv") else ""
        changes.append(
            f"Published roles: CPUs for irq, acl and release of {cards_named(moved)} are threads of the same cores. Instead each role has "
            f"cores of its own, for {moved[0].name} irq {first['irq']}{kv}, acl {first['acl']} and release {first['release']}."
        )
    return entries, changes, _warnings.roles(machine, sharing_cores, small)
