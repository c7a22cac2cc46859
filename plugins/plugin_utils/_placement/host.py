# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as placement sees them: free CPUs by NUMA node, free chips, and what the kubelet allows; from a play or from saved facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import in_force
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, reserve
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import chip_of, npus_of

STATIC = "static"


class HostFacts(TypedDict, total=False):
    """The topology of a host and its labels, or the reason why there is no topology."""

    topology: Topology
    labels: dict[str, Any]
    refused: str


@dataclass(eq=False, slots=True)
class Host:
    """``ids`` are the NUMA nodes with CPUs; sets of nodes are masks of positions in it. ``node_cpus``, ``free_cpus`` are masks of CPUs.

    ``free`` counts what can be given away on each node and ``capacity`` all its CPUs. ``chips`` maps free chips by physical id to their
    logic ids, and ``chip_node`` logic ids to positions. ``policy`` is None on a host without kubelet. A host that is described by
    numbers only has no ``topology`` and no ``free_cpus``.
    """

    name: str
    labels: Mapping[str, Any]
    topology: Topology | None
    ids: list[int]
    capacity: list[int]
    free: list[int]
    policy: str | None = None
    cpu_policy: str | None = None
    node_cpus: list[int] = field(default_factory=list)
    free_cpus: int | None = None
    chips: dict[int, int] = field(default_factory=dict)
    chip_node: dict[int, int] = field(default_factory=dict)
    healthy: int = 0
    distances: list[list[int]] | None = None
    options: PolicyOptions | None = None

    def numbers(self, nodes: int) -> list[int]:
        """Return the ids of a set of nodes."""
        return [number for position, number in enumerate(self.ids) if nodes >> position & 1]

    def label(self, name: str) -> int | None:
        """Return a label that is a number. ``ValueError`` names one that is none."""
        value = self.labels.get(name)
        try:
            return None if value is None else int(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name}: npu_affinity_labels.{name}: expected a number; got {value!r}") from None

    def give(self, cpus: int) -> None:
        """Have these CPUs free, and no others."""
        self.free_cpus = cpus
        self.free = [(cpus & of_node).bit_count() for of_node in self.node_cpus]


def read(name: str, given: object) -> Host:
    """Return a host. ``given`` is a topology, ``{topology, labels}``, or ``{policy, capacity, free}`` with CPUs by NUMA node.

    Raises ``ValueError`` naming the host for anything else.
    """
    if isinstance(given, Mapping):
        if "refused" in given:
            raise ValueError(f"{name}: {given['refused']}")
        labels = given.get("labels") or {}
        topology = given.get("topology", given)
        if isinstance(topology, Mapping) and {"cpus", "npus"} <= topology.keys():
            return _of_topology(name, cast("Topology", topology), labels)
        if {"capacity", "free"} <= given.keys():
            return _of_numbers(name, given, labels)
    raise ValueError(
        f"{name}: expected the fact npu_affinity_topology, or policy, capacity and free (CPUs by NUMA node); "
        f"got {', '.join(sorted(map(str, given))) if isinstance(given, Mapping) else type(given).__name__}"
    )


def _of_numbers(name: str, given: Mapping[str, Any], labels: Mapping[str, Any]) -> Host:
    capacity, free = ({int(node): _count(cpus) for node, cpus in given[key].items()} for key in ("capacity", "free"))
    ids = sorted(number for number in capacity if capacity[number])
    counts = [capacity[number] for number in ids], [free.get(number, 0) for number in ids]
    policies = str(given.get("policy") or "none"), str(given.get("cpu_policy") or STATIC)
    return Host(name, labels, None, ids, *counts, *policies)


def _count(cpus: object) -> int:
    return mask(cpus, "CPUs of a NUMA node").bit_count() if isinstance(cpus, str) else int(str(cpus))


def _of_topology(name: str, topology: Topology, labels: Mapping[str, Any]) -> Host:
    try:
        online = mask(topology["cpus"]["online"], "cpus.online")
        cpus_of = {int(node["id"]): mask(node.get("cpus") or "", "cpus of a NUMA node") & online for node in topology.get("numa") or ()}
        cpus_of = {number: cpus for number, cpus in sorted(cpus_of.items()) if cpus} or {0: online}
        ids, node_cpus = list(cpus_of), list(cpus_of.values())
        capacity = [cpus.bit_count() for cpus in node_cpus]
        host = Host(name, labels, topology, ids, capacity, [], node_cpus=node_cpus)
        host.give(_free_cpus(topology, online))
        if kubelet := topology.get("kubelet"):
            _read_kubelet(host, kubelet, topology.get("numa") or ())
        npus = npus_of(topology)
        host.healthy = len(npus)
        host.chips = {chip_of(npu): int(npu["id"]) for npu in npus if not npu.get("busy")}
        position: dict[int | None, int] = {number: index for index, number in enumerate(ids)}
        host.chip_node = {int(npu["id"]): position[npu["numa"]] for npu in npus if npu.get("numa") in position}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: its topology cannot be used ({type(error).__name__}: {error}); gather it again") from error
    return host


def _read_kubelet(host: Host, kubelet: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> None:
    host.policy = str(kubelet.get("topology_policy") or "none")
    host.cpu_policy = str(kubelet.get("policy") or "none")
    options = {str(key).replace("-", "_"): str(value).lower() == "true" for key, value in (kubelet.get("options") or {}).items()}
    host.options = PolicyOptions(**{name: value for name, value in options.items() if name in PolicyOptions.__dataclass_fields__})
    closest = (kubelet.get("topology_options") or {}).get("prefer-closest-numa-nodes")
    if str(closest).lower() == "true":
        distances = {int(node["id"]): node.get("distances") or {} for node in nodes}
        host.distances = [[int(distances.get(number, {}).get(str(other), 255)) for other in host.ids] for number in host.ids]


def _free_cpus(topology: Topology, online: int) -> int:
    """Return the CPUs that can be given away: with a static kubelet its shared pool, else all that no busy NPU has by the plan in force."""
    kubelet = topology.get("kubelet") or {}
    reserved = mask(kubelet.get("reserved_cpus") or "", "reserved CPUs of the kubelet")
    if kubelet.get("policy") == STATIC:
        if not reserved and kubelet.get("reserved_millicpus"):
            reserved = reserve(units_of(topology), f"{kubelet['reserved_millicpus']}m")
        shared = kubelet.get("default_cpus")
        return (online if shared is None else mask(shared, "shared CPUs of the kubelet") & online) & ~reserved
    applied = topology.get("applied") or {}
    if applied.get("npus"):
        reserved |= mask(applied.get("housekeeping") or "", "housekeeping CPUs of the plan in force")
        for npu, entry in in_force(topology):
            if npu.get("busy"):
                reserved |= mask(entry["pool"], "pool of the plan in force")
    return online & ~reserved


FACT = "npu_affinity_topology"
LABELS = "npu_affinity_labels"
"""The variable of the inventory that gives labels to hosts."""


def fleet(variables: Mapping[str, Any], names: Iterable[str], saved: Mapping[str, str] | None = None) -> dict[str, HostFacts]:
    """Return the topology and the labels of every host by name.

    ``variables`` are those of each host, such as ``hostvars``, and ``names`` the hosts to take of them. With ``saved``, JSON texts by
    file name, the topologies come from there, and the variables only give labels to hosts that have some.
    """
    if not isinstance(variables, Mapping) or not isinstance(names, Iterable) or not isinstance(saved, Mapping | None):
        raise ValueError("expected variables of hosts by name, names, and texts by file name")
    if saved is None:
        return {name: _gathered(variables[name]) for name in names}
    texts = {host_of(file): text for file, text in saved.items()}  # hostvars.get fails for hosts that are not in the inventory
    return {name: _saved(variables[name] if name in variables else {}, text) for name, text in texts.items()}  # noqa: SIM401


def host_of(file: str) -> str:
    """Return the host of a file: newer fact caches of Ansible put ``s1_`` before its name."""
    return file.removesuffix(".json").removeprefix("s1_")


def _gathered(variables: Mapping[str, Any]) -> HostFacts:
    """Return the entry of a host of this run, of which Ansible's fact cache can have the topology of an earlier one.

    The topology is a variable where a playbook set one, or ``inject_facts_as_vars`` is on, else among the facts.
    """
    gathered = variables.get("__npu_affinity_gathered")
    if gathered and "ansible_facts" not in gathered:
        return {"refused": f"its topology cannot be gathered: {gathered.get('msg') or ' '.join(gathered.get('refusals') or ())}"}
    return _entry(variables, variables.get(FACT) or (variables.get("ansible_facts") or {}).get(FACT))


def _saved(variables: Mapping[str, Any], text: str) -> HostFacts:
    """Return the entry of a host by a saved text: the fact itself, an Ansible fact cache with it, or a module's result."""
    try:
        facts = json.loads(text)
        if isinstance(facts, Mapping) and "__payload__" in facts:
            facts = json.loads(facts["__payload__"])
    except (RecursionError, TypeError, ValueError) as error:
        return {"refused": f"its saved facts are not valid JSON ({error})"}
    if not isinstance(facts, Mapping):
        return {"refused": "its saved facts are not a dictionary"}
    facts = inside if isinstance(inside := facts.get("ansible_facts"), Mapping) else facts
    topology = facts if "cpus" in facts else facts.get(FACT)
    return _entry(variables, topology) if topology else {"refused": f"its saved facts do not have {FACT}"}


def _entry(variables: Mapping[str, Any], topology: object) -> HostFacts:
    if not isinstance(topology, Mapping):
        return {"refused": f"the fact {FACT} is not known; gather it with npu.affinity.topology_facts"}
    labels = variables.get(LABELS) or {}
    return {"topology": cast("Topology", topology), "labels": {label: value for label, value in labels.items() if value is not None}}
