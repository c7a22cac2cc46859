# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind of a plan would move, and what its user should look at. Narrowing the memory nodes of units that run moves their memory, and
kills them where it does not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES, OPENMP_BINDER, Binder, Engine
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device, noun
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import gib
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.groups import in_group, title_of
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import variables
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import NONE, SLICES, Work, method_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import is_lost, members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import pods
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import moves
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

_MIB = 1 << 20
_SWITCH = "npu_affinity_slices_enabled is false"
_BINDERS: dict[str, tuple[str, Binder]] = {
    binder.variable: (name, binder)
    for name, engine in reversed(ENGINES.items())
    for binder in engine.binders
    if binder.variable in binder.off and binder is not OPENMP_BINDER
}
"""The variables that switch the binding of an engine on and off; of several engines the first."""
OFF = f"Workloads get no slices, because {_SWITCH}."


def remarks(topology: Topology, plan: Plan, work: Work) -> list[Sentence]:
    """Return what a bind of this plan would move, what the kubelet holds and does, and what to look at in what the settings name."""
    if not plan["npus"]:
        return []
    sentences = moves(topology.get("applied"), plan, work.users()) + pods.remarks(topology, plan)
    users: dict[str, list[str]] = {}
    for user, names in work.users():
        entries = members(plan, names)[0]
        if gone := [entry for entry in entries if is_lost(plan, entry)]:
            npus = " and ".join(f"{title(entry)} (PCI {entry['pci']})" for entry in gone)
            homes = " and ".join(str(entry["slice"]) for entry in gone)
            lost = f"{user} has the CPUs of {homes}, although {npus} cannot be found; name another NPU to move it."
            sentences.append(Sentence("NPU_CARD_LOST", lost))
        for entry in entries if user.endswith(".service") else ():
            users.setdefault(title(entry), []).append(user)
    sentences += [
        Sentence("NPU_CPUS_SHARED", f"{' and '.join(units)} all use {npu}, and share its CPUs.")
        for npu, units in users.items()
        if len(units) > 1
    ]
    for unit, entries, engine in work.units(plan) if method_of(topology, plan)[0] != NONE else ():
        elsewhere = variables.set_elsewhere(topology, unit)
        sentences += variables.differing(topology, plan, work, unit, entries)
        sentences += _overridden(unit, engine, elsewhere) if engine else _binding_itself(unit, elsewhere)
    return sentences + _vnpus.inconsistencies(topology, plan, work.vnpus, work.device_share)


@remark("NPU_CARD_IN_GUEST")
def guests(topology: Topology) -> Iterator[str]:
    """Yield which accelerators get no pool because a driver holds them for a guest."""
    held: dict[tuple[str, str], list[str]] = {}
    for device in topology.get("guests") or ():
        held.setdefault(("GPU" if device["family"] == "gpu" else "NPU", device["driver"]), []).append(device["pci"])
    for (kind, driver), functions in held.items():
        plural, have = ("s", "have") if len(functions) > 1 else ("", "has")
        yield f"{kind}{plural} at {', '.join(functions)} {have} driver {driver}, which gives them to guests: no pool is planned for them."


@remark("NPU_VARIABLE_KEPT")
def _overridden(unit: str, engine: Engine, elsewhere: variables.SetElsewhere) -> list[str]:
    """Return a sentence for every switch of a service's engine that another file sets otherwise, and wins."""
    return [
        f"{of['file']} sets {name}={of['value']}, which overrides the drop-in of {unit} with {name}={value}: {engine.title} then "
        "binds itself. Remove it there."
        for name, value in engine.environment.items()
        if (of := elsewhere.get(name)) and of["wins"] and of["value"] != value
    ]


@remark("NPU_WORKER_BINDS_ITSELF")
def _binding_itself(unit: str, elsewhere: variables.SetElsewhere) -> list[str]:
    """Return a sentence for every switch by which the program of a service without an engine binds itself."""
    return [
        f"{of['file']} sets {name}={of['value']}: {ENGINES[engine].title} then binds itself on the CPUs of {unit}. Add engine: {engine} to "
        "its entry, or remove the variable there."
        for name, (engine, binder) in _BINDERS.items()
        if (of := elsewhere.get(name)) and binder.is_on(of["value"])
    ]


@remark("NPU_NO_EFFECT")
def without_slices(topology: Topology, plan: Plan, work: Work) -> list[str]:
    """Return a sentence on each variable that has no effect on something because the host gets no slices."""
    method = method_of(topology, plan)[0]
    if method == SLICES or not plan["npus"]:
        return []
    if method == NONE:
        claimed = {
            "npu_affinity_services": [str(service["unit"]) for service in work.services],
            "npu_affinity_workloads": [str(workload["name"]) for workload in work.workloads],
        }
        why = "the kubelet's CPU manager is static, and only pods get CPUs of NPUs. Run this work in pods, or remove it from the variable."
        return [f"{no_effect(name, ', '.join(idle))}: {why}" for name, idle in claimed.items() if idle]
    sentences = []
    if plan["housekeeping"]:
        sentences.append(
            f"{no_effect('npu_affinity_housekeeping', ', '.join(HOUSEKEEPING_UNITS))}: systemd cannot confine them on this host. CPUs "
            f"{plan['housekeeping']} belong to no pool, but the system may also run in pools."
        )
    if unbound := [str(workload["name"]) for workload in work.workloads if not workload.get("units")]:
        sentences.append(
            f"{no_effect('npu_affinity_workloads', ', '.join(unbound))}: this host binds services only. List those of the workload in "
            "its units."
        )
    return sentences


@remark("NPU_NO_EFFECT")
def slices_off(plan: Plan, work: Work, places_threads: bool) -> list[str]:
    """Return a sentence on each variable without effect because slices are off. Threads, if on, read services and workloads as well."""
    idle = {
        "npu_affinity_services": [] if places_threads else [str(service["unit"]) for service in work.services],
        "npu_affinity_workloads": [
            str(entry["name"]) for entry in work.workloads if not (places_threads and entry.get("units") or entry.get("roles"))
        ],
        "npu_affinity_vnpus": [str(vnpu["name"]) for vnpu in work.vnpus],
        "npu_affinity_housekeeping": list(HOUSEKEEPING_UNITS) if plan["housekeeping"] else [],
    }
    return [f"{no_effect(name, ', '.join(users))}: {_SWITCH}." for name, users in idle.items() if users and plan["npus"]]


@remark("NPU_MEMORY_ELSEWHERE")
def memory_of_users(topology: Topology, plan: Plan, document: AppliedState) -> Iterator[str]:
    """Yield a sentence for all work outside the slices that would not fit into the memory nodes of its NPUs, once it starts there."""
    units = [entry["unit"] for entry in document["expected"]]
    entries = {Device.of(npu)[:2]: npu for npu in plan["npus"]}
    for user in topology.get("users") or ():
        held = [entries.get((npu["kind"], npu["id"])) for npu in user["npus"]]
        nodes = {node for npu in held if npu for node in expand(memory_nodes(npu))}
        moved = sum(mib for node, mib in user.get("memory_mib", {}).items() if int(node) not in nodes)
        room, fits = _room(topology, nodes, moved)
        if nodes and None not in held and not fits and not any(in_group(user["group"], unit) for unit in units):
            of = f"memory nodes than {compress(nodes)} of its {noun(user['npus'])}s"
            yield (
                f"{title_of(user)} has {gib(moved * _MIB)} on other {of}, {room}: started again in their slice it "
                f"{'may' if fits is None else 'would'} not fit, and the kernel would kill its processes. Adopt it, which moves no memory "
                "(npu_affinity_adopt), or allow it more nodes with npu_affinity_memory (wide, or none)."
            )


def moved_mib(topology: Topology, document: Mapping[str, Any]) -> int | None:
    """Return how much memory of running units a bind would move, None where that is not known. Slices count the memory of their units."""
    moves = {unit: moved for unit, _nodes, _lost, moved in _moves(topology, document)}
    by_unit = {unit: moved for unit, moved in moves.items() if moved is not None}
    outer = sum(by_unit.pop(unit, 0) for unit in ("npu.slice", "gpu.slice"))
    return None if None in moves.values() else max(outer, sum(by_unit.values()))


def _room(topology: Topology, nodes: Collection[int], moved: int) -> tuple[str, bool | None]:
    """Return what room memory nodes have, as words, and whether so many MiB fit; None where that is not known."""
    room: Mapping[str, int] = (topology.get("memory") or {}).get("room_mib") or {}
    free = sum(room.get(str(node), 0) for node in nodes)
    if moved > free and not all(str(node) in room for node in nodes):
        return "whose room is not known", None
    return f"which have room for {gib(free * _MIB)}", moved <= free


@remark("NPU_MEMORY_ELSEWHERE")
def memory_of_units(topology: Topology, document: AppliedState) -> Iterator[str]:
    """Yield a sentence for every running unit that would lose memory nodes on which it has memory. The host decides when it is bound."""
    moves = "a bind moves this memory with npu_affinity_move_memory: true, and is refused otherwise while it runs."
    for unit, nodes, lost, moved in _moves(topology, document):
        if moved is None:
            yield f"{unit} would lose memory nodes {lost}, and keeps nodes {nodes}; how much memory it has there is not known: {moves}"
            continue
        room, fits = _room(topology, expand(nodes), moved)
        has = f"{unit} has {gib(moved * _MIB)} on memory nodes that it would lose, and keeps nodes {nodes}"
        if fits is False:
            yield (
                f"{has}, {room}: a bind is refused while it runs, because the kernel would kill its processes. Stop it first, or allow it "
                "more nodes with npu_affinity_memory (wide, or none)."
            )
        else:
            yield f"{has}{'' if fits else f', {room}'}: {moves}"


def _moves(topology: Topology, document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int | None]]:
    """Yield ``(unit, the nodes that it keeps, those that it would lose, MiB there)`` by ``expected`` and ``live`` of a desired state."""
    memory: Mapping[str, Any] = topology.get("memory") or {}
    wanted = {entry["unit"]: entry["mems"] for entry in document.get("expected") or ()}
    services = ((document.get("live") or {}).get("slices") or {}).get("services") or ()
    wanted |= {service["name"]: service["settings"].get("AllowedMemoryNodes", "") for service in services}
    for unit, held in (memory.get("units") or {}).items():
        nodes = wanted.get(unit) or ""
        lost = set(expand(held["mems"])) - set(expand(nodes))
        moved = None if held["mib"] is None else sum(mib for node, mib in held["mib"].items() if int(node) in lost)
        if nodes and lost and moved != 0:
            yield unit, nodes, compress(lost), moved
