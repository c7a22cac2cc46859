# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs of a pool take interrupts, and which run the worker, its acl_thread and its release_thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_in_order
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import slices_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import PUBLISHED, Options, OfWorkload, RoleSizes

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import PlanEntry

_NAMED_BY = ("pci", "chip", "phy_id")


class Roles(NamedTuple):
    """CPUs of the roles in pool order; kv has none unless it is sized.

    ``irq`` has the CPU of SQ first; CQs are on the others, on that one where there is no other.
    """

    irq: list[int]
    main: list[int]
    kv: list[int]
    acl: list[int]
    release: list[int]


def split(card: Card, pool: list[int], min_cpus: int, sizes: RoleSizes = PUBLISHED) -> Roles:
    """Return the roles by position: irq the first CPUs of the pool, release the last, acl those before, kv before these, main the rest.

    Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, which has two CPUs for irq and one each for acl and
    release; and its PR 10007, which proposes two more there for threads that transfer KV caches. Smaller pools, which ``min_cpus`` has to
    allow, give each role what there is: one irq CPU for NPUs whose PCI function is known, because others have no interrupts that can be
    found, and acl, release and main together where CPUs run out. Raises ``ValueError`` when the
    pool has fewer than ``min_cpus``.
    """
    if not card.has_roles:
        return Roles([], pool, [], [], [])
    if len(pool) < min_cpus:
        raise coded_error(
            "NPU_TOO_FEW_CPUS",
            f"{card.name} has {len(pool)} CPUs. The number of CPUs is insufficient. Each NPU requires at least {min_cpus} CPUs.",
        )
    if len(pool) > sum(sizes):
        release = len(pool) - sizes.release
        acl = release - sizes.acl
        kv = acl - sizes.kv
        return Roles(pool[: sizes.irq], pool[sizes.irq : kv], pool[kv:acl], pool[acl:release], pool[release:])
    if sizes != PUBLISHED:
        return split(card, pool, min_cpus)
    rest = pool[1:] or pool if card.pci else pool
    return Roles(pool[:1] if card.pci else [], rest[: max(1, len(rest) - 2)], [], [rest[-2] if len(rest) > 2 else rest[-1]], [rest[-1]])


def of_workloads(machine: Machine, options: Options, numbers: Mapping[Card, int]) -> dict[Card, RoleSizes]:
    """Return the sizes of the cards whose workloads have roles of their own.

    Raises ``ValueError`` where two workloads want different ones of a card.
    """
    wanted: dict[Card, tuple[str, RoleSizes]] = {}
    for workload in options.workloads:
        if workload.roles is None:
            continue
        for card in cards_of(machine, workload, numbers):
            other, roles = wanted.setdefault(card, (workload.name, workload.roles))
            if roles != workload.roles:
                raise ValueError(
                    f"npu_affinity_workloads: {other} and {workload.name} both have {card.name}, with roles {roles} and "
                    f"{workload.roles}; give both the same"
                )
    return {card: roles for card, (_workload, roles) in wanted.items()}


def cards_of(machine: Machine, workload: OfWorkload, numbers: Mapping[Card, int]) -> list[Card]:
    """Return the cards of a workload in the order of their ids. ``numbers`` are those of slices that are not cards' ids."""
    slices = {f"{card.kind}-{numbers.get(card, card.id)}.slice": card for card in machine.cards}
    plan: Any = {"npus": [{"slice": name, **{key: getattr(card, key) for key in _NAMED_BY}} for name, card in slices.items()]}
    names = slices_of(plan, workload.npus)
    return [card for name, card in slices.items() if name in names]


def entry(machine: Machine, card: Card, pool: str, roles: Roles, nodes: Mapping[str, str], slice_name: str) -> PlanEntry:
    """Return an entry of a plan, with role kv only on request; ``nodes`` are its memory nodes (:func:`_plan.machine.memory`)."""
    made: Any = {
        "kind": card.kind,
        "id": card.id,
        "card": card.card,
        "chip": card.chip,
        "phy_id": card.phy_id,
        "pci": card.pci,
        "pool": pool,
        **{role: text_in_order(cpus) for role, cpus in roles._asdict().items() if role != "kv" or machine.sizes(card).kv},
        **nodes,
        "slice": slice_name,
    }
    return cast("PlanEntry", made)


def arranged(machine: Machine, card: Card, pool: list[int], min_cpus: int, repair: bool) -> tuple[Roles, bool, bool]:
    """Return the roles of a pool; with ``repair`` and whole cores, each on cores of its own where that is possible.

    Also return whether they are other CPUs than by position, and whether cores are too few to keep them apart.
    """
    roles = split(card, pool, min_cpus, machine.sizes(card))
    if not (repair and roles.irq and machine.smt == "cores" and machine.core_of) or len(pool) < sum(PUBLISHED):
        return roles, False, False
    apart = spread(pool, roles, machine.core_of, machine.threads_per_core)
    return apart or roles, apart not in (None, roles), apart is None


def spread(pool: list[int], roles: Roles, core_of: Mapping[int, int], threads_per_core: int) -> Roles | None:
    """Return roles of the same sizes of which no two but main are on one core, as near to the ends of the pool as before.

    Every CPU of these roles has a core of its own, and the other threads of that core belong to main. Where cores are too few for
    that, CPUs of one role share cores: two on each, or as many as it takes. For threads of one core slow each other down, and work of
    one kind may better wait for its own kind than for another. None where even that takes more cores than the pool has.
    """
    ends = [*roles.irq, *roles.kv, *roles.acl, *roles.release]
    if len(set(map(core_of.get, ends, ends))) == len(ends):
        return roles
    backwards = pool[::-1]
    for on_a_core in range(1, threads_per_core + 1):
        taken: set[int] = set()
        irq = _take(pool, len(roles.irq), on_a_core, core_of, taken)
        release, acl, kv = (_take(backwards, len(cpus), on_a_core, core_of, taken) for cpus in (roles.release, roles.acl, roles.kv))
        if len(irq + release + acl + kv) == len(ends):
            main = set(pool).difference(irq, release, acl, kv)
            return Roles(*(sorted(cpus, key=pool.index) for cpus in (irq, main, kv, acl, release)))
    return None


def _take(cpus: list[int], count: int, on_a_core: int, core_of: Mapping[int, int], taken: set[int]) -> list[int]:
    """Return the first CPUs that are not on cores ``taken``, so many on each core, and add their cores to those; fewer where they end."""
    chosen: list[int] = []
    for cpu in cpus:
        core = core_of.get(cpu, cpu)
        if core not in taken:
            taken.add(core)
            chosen += [other for other in cpus if core_of.get(other, other) == core][:on_a_core]
            if len(chosen) >= count:
                return chosen[:count]
    return chosen
