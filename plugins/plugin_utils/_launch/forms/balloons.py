# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A configuration of NRI's balloons policy whose balloons have exactly the CPUs of the plan, and the pod that runs in one of them.

containers/nri-plugins, ``docs/resource-policy/policy/balloons.md``, ``cmd/plugins/balloons/policy/{balloons-policy,cputree}.go`` and
``pkg/topology/topology.go``: no balloon type names CPUs. One of a fixed size takes them from those close to a device of sysfs, if these are
enough. Close to a NUMA node are its CPUs (``cpulist``), close to the first cache of a core its threads (``shared_cpu_list``). A type with
``components`` has their CPUs together and no device of its own. Types of one priority are filled in their order, ``reserved`` first.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import pod
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import numbered
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = pod.ON_A_NODE
ANNOTATION = "balloon.balloons.resource-policy.nri.io/pod"
_ONCE = {"minBalloons": 1, "maxBalloons": 1, "allocatorPriority": "normal"}


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.topology:
        raise ValueError(f"{workload.title}: balloons are made of cores and NUMA nodes, and a plan has neither; give topology")
    name = pod.name_of(workload)
    wanted = pod.only_without_cpu_manager(workload, "the balloons policy")
    reserved = pod.reserved(workload, options)
    if not reserved:
        raise ValueError(
            f"{workload.title}: the policy needs reserved CPUs, and the plan has none for interrupts; give plan with housekeeping"
        )
    balloons = {name: pod.usable(workload, workload.cpus, reserved)}
    for entry in _others(workload, options.plan):
        balloons[str(entry["slice"]).removesuffix(".slice")] = pod.usable(workload, entry["pool"], reserved)
    online = set(expand(workload.topology["cpus"]["online"]))
    left = online.difference(reserved, *balloons.values())
    made = pod.pod(workload, options, name, len(balloons[name]))
    made["metadata"]["annotations"] = {ANNOTATION: name}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": options.node}
    notes = [
        "A node has one policy, and applying it moves containers that run."
        + ("" if options.plan else " Give plan, or add the balloon types of its other NPUs and their CPUs for interrupts."),
        f"Compare: the balloon of this pod has CPUs {compress(balloons[name])} (kubectl logs of the plugin, or its metrics).",
        *wanted,
    ]
    if not left:
        notes.append(
            "No CPU is left for pods in no balloon of these, and they will not start on this node: plan with fewer CPUs, or let them run "
            "on the reserved ones with reservedPoolNamespaces: ['*']."
        )
    if options.devices:
        notes += [pod.DEVICES_ELSEWHERE, f"The CPUs are those of {workload.title}; which NPU the pod gets, the device plugin decides."]
    return Recipe(pod.documents(_policy(workload, options.node, reserved, balloons), made), notes)


def _others(workload: Workload, plan: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of the plan whose CPUs are not the workload's."""
    own = set(expand(workload.cpus))
    for entry in sorted(plan["npus"] if plan else (), key=lambda entry: kind_and_number(entry["slice"])):
        if not own & set(expand(entry["pool"])):
            yield entry


def _policy(workload: Workload, node: str, reserved: set[int], balloons: Mapping[str, set[int]]) -> dict[str, Any]:
    nodes = {frozenset(set(expand(numa["cpus"])) - reserved): numa["id"] for numa in workload.topology.get("numa") or ()}
    cores = {frozenset(core): min(core) for core in numbered(workload.topology)}
    types: list[dict[str, Any]] = [{"name": "reserved", "minCPUs": len(reserved)}]
    parts: dict[str, dict[str, Any]] = {}
    for name, cpus in balloons.items():
        if (number := nodes.get(frozenset(cpus))) is not None:
            types.append({"name": name, **_ONCE, **_close(f"node/node{number}", len(cpus))})
            continue
        held = {f"cpu-{first}": (first, core) for core, first in cores.items() if core <= cpus}
        if split := cpus - {cpu for _first, core in held.values() for cpu in core}:
            raise ValueError(
                f"{workload.title}: other threads of the cores of CPUs {compress(split)} are in no balloon; plan with smt=cores"
            )
        types.append({"name": name, **_ONCE, "components": [{"balloonType": part} for part in held]})
        parts |= {part: {"name": part, **_close(f"cpu/cpu{first}/cache/index0", len(core))} for part, (first, core) in held.items()}
    return {
        "apiVersion": "config.nri/v1alpha1",
        "kind": "BalloonsPolicy",
        "metadata": {"name": f"node.{node}", "namespace": "kube-system"},
        "spec": {
            "reservedResources": {"cpu": f"cpuset:{compress(reserved)}"},
            "pinCPU": True,
            "pinMemory": True,
            "balloonTypes": [*types, *parts.values()],
        },
    }


def _close(device: str, cpus: int) -> dict[str, Any]:
    return {"preferCloseToDevices": [f"/sys/devices/system/{device}"], "minCPUs": cpus, "maxCPUs": cpus}
