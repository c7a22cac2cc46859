# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A configuration of NRI's balloons policy whose balloons lie close to the NPUs that their pods get, and such a pod.

containers/nri-plugins@0705acc8, ``docs/resource-policy/policy/balloons.md`` and ``cmd/plugins/balloons/policy/balloons-policy.go`` (pull
requests 720 and 722): with ``preferCloseToDevices: [podresourceapi:RESOURCE]`` a new balloon takes its CPUs from the NUMA nodes of the
devices that the kubelet gave to its container. ``irqClaim`` moves interrupts, by name, to the CPUs of all balloons of a type; every other
interrupt then goes to all CPUs, unless ``controllableInterrupts`` leaves it out. The balloon ``reserved`` takes the reserved CPUs only
where ``minCPUs`` asks for as many.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ
from ansible_collections.npu.affinity.plugins.module_utils._kernel.devices import SQ
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import forecast
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import pod
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = pod.ON_A_NODE - {"devices"}
ANNOTATION = "balloon.balloons.resource-policy.nri.io/pod"
INTERRUPTS = [f"*{SQ}*", f"*{CQ}*"]


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.cards:
        raise ValueError(f"{workload.title} names no NPU, and balloons lie close to NPUs; give npus")
    name = pod.name_of(workload)
    wanted = pod.only_without_cpu_manager(workload, "the balloons policy")
    reserved = pod.reserved(workload, options)
    if not reserved:
        raise ValueError(
            f"{workload.title}: the policy needs reserved CPUs, and the plan has none for interrupts; plan with npu_affinity_housekeeping"
        )
    cpus = pod.usable(workload, workload.cpus, reserved)
    made = pod.pod(workload, options, name, len(cpus))
    made["metadata"]["annotations"] = {ANNOTATION: workload.kind}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": options.node}
    resource = pod.resource(workload, options)
    claims = INTERRUPTS if any(entry.get("irq") for entry in _entries(workload, options)) else []
    notes = [
        "It needs nri-plugins of August 2026 or newer (pull requests 720 and 722). A node has one policy, and applying it moves containers "
        "that run." + ("" if options.plan else " reservedResources must have the CPUs for interrupts of all other NPUs, too: give plan."),
        f"The pod gets {len(cpus)} CPUs close to its NPU, not the set of the plan.",
        *wanted,
        *_unhinted(workload),
        pod.devices_elsewhere(resource),
    ]
    if claims:
        notes.append(
            f"The policy moves the interrupts of all NPUs to CPUs {compress(reserved)}, as it finds them when it starts: restart it after "
            "a driver load, and set npu_affinity_irq_enabled: false for this host, or leave irqClaim and controllableInterrupts out."
        )
    return Recipe(pod.documents(_policy(workload, options.node, reserved, claims, resource), made), notes)


def _entries(workload: Workload, options: Options) -> list[dict[str, Any]]:
    return [{"irq": workload.irq}, *(options.plan["npus"] if options.plan else ())]


def _unhinted(workload: Workload) -> list[str]:
    """Return a sentence where the device plugin tells the policy nothing about an NPU."""
    silent = [str(npu) for npu, node in forecast.hints(workload.topology).items() if node is None] if workload.topology else []
    apart = f" MindCluster's has none for NPU {', '.join(silent)}." if silent else ""
    return [f"The device plugin must tell the NUMA nodes of its devices, which HAMi's does not.{apart}"] if workload.kind == "npu" else []


def _policy(workload: Workload, node: str, reserved: set[int], claims: list[str], resource: str) -> dict[str, Any]:
    close = {
        "name": workload.kind,
        "preferNewBalloons": True,
        "preferSpreadingPods": True,
        "preferCloseToDevices": [f"podresourceapi:{resource}"],
    }
    return {
        "apiVersion": "config.nri/v1alpha1",
        "kind": "BalloonsPolicy",
        "metadata": {"name": f"node.{node}", "namespace": "kube-system"},
        "spec": {
            "agent": {"podResourceAPI": True},
            "reservedResources": {"cpu": f"cpuset:{compress(reserved)}"},
            **({"controllableInterrupts": list(claims)} if claims else {}),
            "balloonTypes": [{"name": "reserved", "minCPUs": len(reserved), **({"irqClaim": list(claims)} if claims else {})}, close],
        },
    }
