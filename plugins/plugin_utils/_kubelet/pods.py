# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs pods have or will have next to a plan, and the names under which device plugins offer NPUs to pods.

A plan does not look at these CPUs: pods come and go, and a plan that followed them would move. With a static CPU manager, a bind places the
interrupts alone, elsewhere the pools and what is kept for the system. Pods that got CPUs of a plan in force afterwards refuse nothing.

Sources of names: Ascend/mind-cluster@22bb3d98, ``component/ascend-common/api/default_name.go``; NVIDIA/k8s-device-plugin. HAMi's device
plugin has names of its own.

Sources of hints: Ascend/mind-cluster@9d4acd8e (its device plugin hints at the NUMA node whose cpulist is, as text, the CPU list that DCMI
has for the NPU, which is what npu-smi prints, else at the one that the PCI function has in sysfs, else at none);
Project-HAMi/ascend-device-plugin@ed35e1c4 (devices have no NUMA node for the kubelet, and node 0 for HAMi's own scheduler); Kubernetes,
"Control Topology Management Policies on a node" and "About cgroup v2" (``failCgroupV1`` is on by default from 1.35).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.state_file import minor_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import SINGLE

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Kubelet, Plan, Topology

REFUSES_CGROUP_V1 = (1, 35)
"""The first release that does not start on cgroup v1 by default."""
_ALIGNED = {
    "best-effort": "takes a pod's CPUs from that node where enough are free, else from others",
    "restricted": "takes a pod's CPUs from that node, and refuses pods for which it has too few left",
    SINGLE: "takes a pod's CPUs from that node alone, and refuses pods for which it has too few left",
}
_NEXT = (
    "Let the kubelet reserve these CPUs (reservedSystemCPUs, role kubelet with npu_affinity_kubelet_enabled), bind when these pods have "
    "ended, or allow other CPUs with npu_affinity_cpus."
)


def refusals(topology: Topology, plan: Plan) -> list[Sentence]:
    """Return why a plan cannot be applied now: it would take CPUs that it does not have yet from containers."""
    static = _is_static(topology)
    return _sentences(topology, static, _needed(plan, static) & ~_needed(topology.get("applied") or {}, static), "would take")


def remarks(topology: Topology, plan: Plan) -> list[Sentence]:
    """Return which CPUs of a plan containers have, what is wrong with the kubelet's files and its cgroups, and a forecast."""
    static, kubelet = _is_static(topology), topology.get("kubelet")
    held = _sentences(topology, static, _needed(plan, static), "needs")
    if not kubelet:
        return held
    wrong = [Sentence("NPU_KUBELET_BLOCKED", f"{sentence}.") for sentence in kubelet.get("warnings") or ()] + _cgroups(topology, kubelet)
    return held + wrong + forecast(topology) + _crowded(topology, kubelet, plan)


def _is_static(topology: Topology) -> bool:
    return (topology.get("kubelet") or {}).get("policy") == "static"


def _needed(plan: Plan, static: bool) -> int:
    cpus = union(mask(entry.get("irq" if static else "pool") or "") for entry in plan.get("npus") or ())
    return cpus if static else cpus | mask(plan.get("housekeeping") or "")


def _sentences(topology: Topology, static: bool, needed: int, verb: str) -> list[Sentence]:
    holders = [
        f"{text_of(mask(cpulist) & needed)} of {name} (which holds {cpulist})"
        for name, cpulist in sorted(_exclusive((topology.get("kubelet") or {}).get("exclusive") or {}))
        if mask(cpulist, f"kubelet's CPUs of {name}") & needed
    ]
    if not holders:
        return []
    what = "for interrupts" if static else "for pools and the system"
    return [Sentence("NPU_PODS_IN_POOL", f"The plan {verb} CPUs {what} that the kubelet gave to containers: {', '.join(holders)}. {_NEXT}")]


def _exclusive(sets: Mapping[str, object], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``(pod/container, cpulist)`` of the kubelet's exclusive sets, whether nested by pod or flat."""
    for name, value in sets.items():
        if isinstance(value, Mapping):
            yield from _exclusive(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", str(value)


def hints(topology: Topology) -> dict[int, int | None]:
    """Return the NUMA node at which MindCluster's device plugin hints for each NPU, by logic id; None where it says nothing."""
    nodes = {str(node.get("cpus")): int(node["id"]) for node in topology.get("numa") or () if node.get("cpus")}
    return {
        int(npu["id"]): nodes.get(str(npu.get("affinity")), npu.get("numa")) for npu in topology["npus"] if npu.get("kind", "npu") == "npu"
    }


@remark("NPU_KUBELET_BLOCKED")
def _cgroups(topology: Topology, kubelet: Kubelet) -> Iterator[str]:
    version, cgroup = kubelet.get("version"), (topology.get("machine") or {}).get("cgroup")
    refuses = version and minor_of(version) >= REFUSES_CGROUP_V1 and kubelet.get("fail_cgroup_v1") != "false"
    if refuses and cgroup in ("v1", "hybrid"):
        yield (
            f"Kubelet {version} does not start on this host, which has cgroup {cgroup}: boot it with cgroup v2 (kernel parameter "
            "systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false in the kubelet's configuration."
        )


@remark("NPU_KUBELET_FORECAST")
def forecast(topology: Topology) -> list[str]:
    """Return one sentence on what becomes of hints; nothing where there is no NPU or no kubelet."""
    hinted, kubelet = hints(topology), topology.get("kubelet")
    if not hinted or not kubelet:
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
        f"With MindCluster's device plugin, which hints at {_hinted_nodes(topology, hinted)}, the kubelet {_ALIGNED[policy]} ({policy}); "
        "HAMi's hints at nothing, and the CPUs of its pods lie on any node."
    ]


@remark("NPU_KUBELET_FORECAST")
def _crowded(topology: Topology, kubelet: Kubelet, plan: Plan) -> Iterator[str]:
    """Yield a sentence where hinted nodes have fewer CPUs for pods than the plan has for their NPUs."""
    policy = str(kubelet.get("topology_policy") or "none")
    if kubelet.get("policy") != "static" or policy not in _ALIGNED:
        return
    reserved, hinted, parts = mask(kubelet.get("reserved_cpus") or ""), hints(topology), []
    for node in topology.get("numa") or ():
        entries = [entry for entry in plan["npus"] if entry.get("kind", "npu") == "npu" and hinted.get(entry["id"]) == node["id"]]
        wanted = sum((mask(entry["pool"]) & ~mask(entry["irq"])).bit_count() for entry in entries)
        available = (mask(node.get("cpus") or "") & ~reserved).bit_count()
        if wanted > available:
            names = " and ".join(title(entry) for entry in entries)
            parts.append(f"{available} of {wanted} on node {node['id']} for {names}")
    ends = "get the rest from other nodes" if policy == "best-effort" else "are refused once these are taken"
    if parts:
        yield (
            "Hinted NUMA nodes have fewer CPUs for pods than the plan has outside interrupts, so that pods that ask for as many "
            f"{ends} ({policy}): {', '.join(parts)}."
        )


def _hinted_nodes(topology: Topology, hinted: Mapping[int, int | None]) -> str:
    """Return at what is hinted: the NPUs' own nodes, except for those that differ."""
    kernel_nodes = {int(npu["id"]): npu.get("numa") for npu in topology["npus"]}
    silent = [f"NPU {number}" for number, node in hinted.items() if node is None]
    if len(silent) == len(hinted):
        return "nothing here"
    apart = [
        f"node {node} for NPU {number}, which sysfs has on node {kernel_nodes[number]}"
        for number, node in hinted.items()
        if node is not None and kernel_nodes[number] not in (None, node)
    ]
    parts = ["the NUMA node of the NPU", *apart, *([f"nothing for {', '.join(silent)}"] if silent else [])]
    return ", but ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])


RESOURCES = {
    "910": "huawei.com/Ascend910",
    "a2": "huawei.com/Ascend910",
    "a3": "huawei.com/Ascend910",
    "a5": "huawei.com/npu",
    "310p": "huawei.com/Ascend310P",
    "310": "huawei.com/Ascend310",
    "gpu": "nvidia.com/gpu",
}


_TEMPLATE = re.compile(r"vir(\d\d)(?:_(\d)c)?(?:_(\d+)g)?(?:_(nm|ndvpp|m|dvpp))?")
_VIDEO = {"nm": "ndvpp", "ndvpp": "ndvpp", "m": "dvpp", "dvpp": "dvpp"}
TEMPLATES = {
    "a2": (
        *("vir06_1c_16g", "vir12_3c_32g", "vir03_1c_8g", "vir05_1c_8g", "vir05_1c_16g"),
        *("vir10_3c_16g", "vir10_3c_32g", "vir10_3c_16g_nm", "vir10_4c_16g_m"),
    ),
    "a3": ("vir06_1c_16g", "vir12_3c_32g", "vir05_1c_16g", "vir10_3c_32g"),
    "310p": ("vir01", "vir02", "vir04", "vir02_1c", "vir04_3c", "vir04_3c_ndvpp", "vir04_4c_dvpp"),
}
"""Templates of hard vNPUs that MindCluster offers to pods, by family (``docs/zh/scheduling/04_usage/02_virtual_instance``)."""


def vnpu_resource(families: Iterable[str | None], template: str) -> str:
    """Return the name for hard vNPUs of a template: ``huawei.com/Ascend910-5c.1cpu.16g`` for ``vir05_1c_16g``."""
    distinct = sorted(set(families), key=str)
    offered = TEMPLATES.get(distinct[0] or "", ()) if len(distinct) == 1 else ()
    match = _TEMPLATE.fullmatch(template)
    if template not in offered or not match:
        raise ValueError(
            f"template: MindCluster offers no vNPU {template!r} of the family {', '.join(map(str, distinct)) or 'unknown'}; "
            f"it has {', '.join(offered) or 'none'}"
        )
    cores, cpus, memory, video = match.groups()
    parts = [f"{int(cores)}c", *([f"{cpus}cpu"] if cpus else []), *([f"{memory}g"] if memory else []), *([_VIDEO[video]] if video else [])]
    return f"{RESOURCES[distinct[0] or '']}-{'.'.join(parts)}"


def resource_of(families: Iterable[str | None]) -> str | None:
    """Return the name for NPUs of these families, None where a family is not known. ``ValueError``: they have several names."""
    names = {RESOURCES.get(family or "") for family in families}
    if None in names or not names:
        return None
    if len(names) > 1:
        raise ValueError(f"resource: the NPUs are offered as {', '.join(sorted(filter(None, names)))}; name the one that is wanted")
    return names.pop()
