# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet will do with pods that ask for NPUs, said before there is one: whether their CPUs come from the NUMA node of the NPU.

Sources: Ascend/mind-cluster@9d4acd8e (its device plugin hints at the NUMA node whose cpulist is, as text, the CPU list that DCMI has for
the NPU, which is what npu-smi prints, else at the one that the PCI function has in sysfs, else at none);
Project-HAMi/ascend-device-plugin@ed35e1c4 (devices have no NUMA node for the kubelet, and node 0 for HAMi's own scheduler); Kubernetes,
"Control Topology Management Policies on a node" and "About cgroup v2" (``failCgroupV1`` is on by default from 1.35).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.version import release
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import SINGLE

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

REFUSES_CGROUP_V1 = (1, 35)
"""The first release that does not start on cgroup v1 by default."""
_ALIGNED = {
    "best-effort": "takes a pod's CPUs from that node where enough are free, else from others",
    "restricted": "takes a pod's CPUs from that node, and refuses pods for which it has too few left",
    SINGLE: "takes a pod's CPUs from that node alone, and refuses pods for which it has too few left",
}


def remarks(topology: Topology, plan: Plan) -> list[Sentence]:
    """Return what is wrong with the kubelet's files and its cgroups, and the forecast; nothing without a kubelet."""
    kubelet = topology.get("kubelet")
    if not kubelet:
        return []
    wrong = [Sentence("NPU_KUBELET_BLOCKED", f"{sentence}.") for sentence in kubelet.get("warnings") or ()] + _cgroups(topology, kubelet)
    return wrong + forecast(topology) + _crowded(topology, kubelet, plan)


def hints(topology: Topology) -> dict[int, int | None]:
    """Return the NUMA node at which MindCluster's device plugin hints for each NPU, by logic id; None where it says nothing."""
    nodes = {str(node.get("cpus")): int(node["id"]) for node in topology.get("numa") or () if node.get("cpus")}
    return {
        int(npu["id"]): nodes.get(str(npu.get("affinity")), npu.get("numa")) for npu in topology["npus"] if npu.get("kind", "npu") == "npu"
    }


@remark("NPU_KUBELET_BLOCKED")
def _cgroups(topology: Topology, kubelet: Mapping[str, Any]) -> list[str]:
    version, cgroup = kubelet.get("version"), (topology.get("machine") or {}).get("cgroup")
    if not version or release(version) < REFUSES_CGROUP_V1 or cgroup not in ("v1", "hybrid") or kubelet.get("fail_cgroup_v1") == "false":
        return []
    return [
        f"Kubelet {version} does not start on this host, which has cgroup {cgroup}: boot it with cgroup v2 (kernel parameter "
        "systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false in the kubelet's configuration."
    ]


@remark("NPU_KUBELET_FORECAST")
def forecast(topology: Topology) -> list[str]:
    """Return one sentence on what becomes of hints; nothing where there is no NPU or no kubelet."""
    found, kubelet = hints(topology), topology.get("kubelet")
    if not found or not kubelet:
        return []
    policy = str(kubelet.get("topology_policy") or "none")
    if kubelet.get("policy") != "static":
        return [
            "Pods have no CPUs of their own on this node (CPU manager none): they run on all of them, whatever NUMA node a device plugin "
            "hints at."
        ]
    if policy not in _ALIGNED:
        return [
            "The kubelet chooses the CPUs of a pod without a look at its NPUs (topology manager none), whatever NUMA node a device plugin "
            "hints at: set topologyManagerPolicy to best-effort, restricted or single-numa-node."
        ]
    return [
        f"With MindCluster's device plugin, which hints at {_told(topology, found)}, the kubelet {_ALIGNED[policy]} ({policy}); HAMi's "
        "hints at nothing, and the CPUs of its pods lie on any node."
    ]


@remark("NPU_KUBELET_FORECAST")
def _crowded(topology: Topology, kubelet: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return a sentence where hinted nodes have fewer CPUs for pods than the plan has for their NPUs."""
    policy = str(kubelet.get("topology_policy") or "none")
    if kubelet.get("policy") != "static" or policy not in _ALIGNED:
        return []
    reserved = mask(kubelet.get("reserved_cpus") or "")
    found = hints(topology)
    parts = []
    for node in topology.get("numa") or ():
        entries = [entry for entry in plan["npus"] if entry.get("kind", "npu") == "npu" and found.get(entry["id"]) == node["id"]]
        wanted = sum((mask(entry["pool"]) & ~mask(entry["irq"])).bit_count() for entry in entries)
        left = (mask(node.get("cpus") or "") & ~reserved).bit_count()
        if wanted > left:
            names = " and ".join(title(entry) for entry in entries)
            parts.append(f"{left} of {wanted} on node {node['id']} for {names}")
    ends = "get the rest from other nodes" if policy == "best-effort" else "are refused once these are taken"
    if not parts:
        return []
    return [
        "Hinted NUMA nodes have fewer CPUs for pods than the plan has outside interrupts, so that pods that ask for as many "
        f"{ends} ({policy}): {', '.join(parts)}."
    ]


def _told(topology: Topology, found: Mapping[int, int | None]) -> str:
    """Return at what is hinted: the NPUs' own nodes, except for those that differ."""
    own = {int(npu["id"]): npu.get("numa") for npu in topology["npus"]}
    silent = [f"NPU {number}" for number, node in found.items() if node is None]
    if len(silent) == len(found):
        return "nothing here"
    apart = [
        f"node {node} for NPU {number}, which sysfs has on node {own[number]}"
        for number, node in found.items()
        if node is not None and own[number] not in (None, node)
    ]
    parts = ["the NUMA node of the NPU", *apart, *([f"nothing for {', '.join(silent)}"] if silent else [])]
    return ", but ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])
