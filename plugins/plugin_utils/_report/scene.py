# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the picture of a plan shows: NPUs with their part of the plan, whose each CPU is, and the NUMA nodes around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import of_gpu
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Nic, Plan, Topology

ROLES = {"pool": "pool", "irq": "IRQ", "main": "main", "kv": "KV", "acl": "ACL", "release": "release", "memory_nodes": "memory nodes"}
HOUSEKEEPING, IDLE, LEFT_OUT, OFFLINE, SHARED, LOST = STATES = ("housekeeping", "idle", "left", "offline", "shared", "lost")
Owner = tuple[int, ...] | str
"""Whose a CPU is: indexes of NPUs, or which of STATES makes it nobody's."""


@dataclass(frozen=True)
class Npu:
    """An NPU or GPU with its part of the plan: ``roles`` are its cpulists, with those of memory nodes; empty where the plan
    does not have it.

    ``badge`` is what its CPUs are marked with, ``node`` the id of the NUMA node it is attached to.
    """

    label: str
    badge: str
    name: str
    pci: str
    node: int | None
    roles: Mapping[str, str]
    slice: str
    remark: str
    lost: bool

    @property
    def description(self) -> str:
        known = ", ".join(part for part in (self.name, self.pci, "" if self.node is None else f"NUMA node {self.node}") if part)
        roles = ", ".join(f"{name} {self.roles[role]}" for role, name in ROLES.items() if self.roles.get(role))
        return "; ".join(part for part in (f"{self.label} ({known})" if known else self.label, self.remark, roles, self.slice) if part)


@dataclass(frozen=True)
class Frame:
    """A NUMA node, or what belongs to none: its cores by the cpulist of their cache ("" unknown), indexes of the NPUs attached to it,
    and its network adapters."""

    id: int | None
    note: str
    groups: Mapping[str, Sequence[Sequence[int]]]
    npus: Sequence[int]
    nics: Sequence[Nic]

    @property
    def label(self) -> str:
        return "no NUMA node known" if self.id is None else f"NUMA node {self.id}"

    @property
    def cpus(self) -> Iterator[int]:
        return (cpu for cores in self.groups.values() for core in cores for cpu in core)


def npus_of(plan: Plan, topology: Topology) -> Iterator[Npu]:
    """Yield the NPUs of the topology with their part of the plan, then what only the plan has: lost ones, and those of another host."""
    mixed = len({found.get("kind") or "npu" for found in topology["npus"]}) > 1
    entries = {(entry["pci"], entry["id"], _kind(entry)): entry for entry in plan["npus"]}

    def npu(kind: str, found: Mapping[str, Any], entry: Mapping[str, Any], remark: str = "", lost: bool = False) -> Npu:
        badge = f"{'×' if lost else ''}{kind[0].upper() if mixed else ''}{found['id']}"
        entry = {**entry, "memory_nodes": memory_nodes(entry)}
        roles = {role: str(entry[role]) for role in (*ROLES, "mems") if entry.get(role)}
        name, pci, slice_name = (str(value or "") for value in (found.get("name"), found.get("pci"), entry.get("slice")))
        return Npu(f"{kind.upper()} {found['id']}", badge, name, pci, found.get("numa"), roles, slice_name, remark, lost)

    for found in topology["npus"]:
        kind = found.get("kind") or "npu"
        entry: Mapping[str, Any] = entries.pop((found["pci"] or "", found["id"], kind), {})
        yield npu(kind, found, entry, "" if entry else "not in this plan")
    for entry in entries.values():
        yield npu(_kind(entry), entry, entry, "not in the topology")
    for entry in plan.get("lost") or ():
        yield npu(
            _kind(entry), entry, entry, f"{'not listed by npu-smi' if entry.get('unlisted') else 'lost'}; its pool is kept", lost=True
        )


def _kind(entry: Mapping[str, Any]) -> str:
    return "gpu" if str(entry.get("slice")).startswith("gpu-") else "npu"


def owners_of(plan: Plan, topology: Topology, npus: Sequence[Npu]) -> dict[int, Owner]:
    """Return the owner of every CPU of the machine."""
    pools: dict[int, tuple[int, ...]] = {}
    for index, npu in enumerate(npus):
        for cpu in expand(npu.roles.get("pool", ""), f"pool of {npu.label}"):
            pools[cpu] = (*pools.get(cpu, ()), index)
    online = set(expand(topology["cpus"]["online"], "cpus.online of the topology"))
    offline = set(expand(topology["cpus"].get("offline") or "", "cpus.offline of the topology"))
    divided = set(expand(plan["cpus"], "cpus of the plan"))
    housekeeping = set(expand(plan["housekeeping"], "housekeeping of the plan"))

    def owner(cpu: int) -> Owner:
        if cpu in offline:
            return OFFLINE
        return pools.get(cpu) or (HOUSEKEEPING if cpu in housekeeping else IDLE if cpu in divided else LEFT_OUT)

    return {cpu: owner(cpu) for cpu in sorted(online | offline)}


def frames_of(topology: Topology, npus: Sequence[Npu], owners: Mapping[int, Owner]) -> Iterator[Frame]:
    """Yield the NUMA nodes that have CPUs or NPUs, then one frame for what belongs to no node (the kernel hides an offline CPU's)."""
    core_of = {cpu: core for core in topology["cpus"].get("siblings") or () for cpu in expand(core, "cpus.siblings of the topology")}
    cache_of = {cpu: cache for cache in topology["cpus"].get("caches") or () for cpu in expand(cache, "cpus.caches of the topology")}

    def groups(cpus: Iterable[int]) -> dict[str, list[list[int]]]:
        cores: dict[str, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(core_of.get(cpu, str(cpu)), []).append(cpu)
        caches: dict[str, list[list[int]]] = {}
        for core in cores.values():
            caches.setdefault(cache_of.get(core[0], ""), []).append(core)
        return caches

    def nics(node: int | None) -> list[Nic]:
        return [nic for nic in topology.get("nics") or () if nic["numa"] == node]

    left, of_gpus = set(owners), of_gpu(topology)
    without_node = set(range(len(npus)))
    for node in topology.get("numa") or ():
        cpus = left.intersection(expand(node["cpus"], f"cpus of NUMA node {node['id']}"))
        attached = [index for index in sorted(without_node) if npus[index].node == node["id"]]
        left -= cpus
        without_node.difference_update(attached)
        if cpus or attached:
            note = f"{compress(cpus) or 'no CPUs'}{'' if node.get('memory_mib') else ', no memory'}"
            functions = {npus[index].pci for index in attached}
            if own := compress(number for number, function in of_gpus.items() if function in functions):
                note += f", memory of GPUs on {own}"
            yield Frame(node["id"], note, groups(cpus), attached, nics(node["id"]))
    if left or without_node:
        yield Frame(None, compress(left), groups(left), sorted(without_node), nics(None))


def indexes(owner: Owner) -> tuple[int, ...]:
    """Return the NPUs that own a CPU, none when it is nobody's."""
    return () if isinstance(owner, str) else owner
