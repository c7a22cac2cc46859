# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of Kubernetes for Volcano's numa-aware plugin: its scheduler's configuration, samples, and what the exporter says of hosts.

Sources: volcano-sh/volcano@ed72c7c8 (CRDs of Job and Numatopology), volcano-sh/resource-exporter@a4bd4247 (what it publishes) and Huawei
Cloud CCE, "NUMA Affinity Scheduling" (annotation and ``topologyPolicy``).

Numbers of cores are those of their lowest CPU, which are unique on a host; the exporter has the kernel's, unique within a socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import volcano_scheduler
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import CORES, NODES, SOCKETS
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.pods import resource_of, vnpu_resource
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

ANNOTATION = "volcano.sh/numa-topology-policy"
SCHEDULER = "volcano"
_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")

Object = dict[str, Any]


def volcano(
    hosts: Mapping[str, Topology],
    cpus: int = 1,
    npus: int = 0,
    policy: str = "single-numa-node",
    replicas: int = 1,
    name: str = "sample",
    image: str = "ubuntu",
    memory: str = "1Gi",
    weight: int = 10,
    resource: str | None = None,
    cluster: str = "volcano",
    namespace: str = "",
    plugins: Sequence[Sequence[str | Mapping[str, Any]]] | None = None,
    template: str = "",
) -> dict[str, Any]:
    """Return ``{scheduler, deployment, job, numatopologies}``; for the cluster ``cce`` also ``addon`` and ``expert``.

    ``hosts`` maps names of nodes to topologies; those without a kubelet are not nodes and are left out. ``cpus``, ``npus`` and ``memory``
    are those of a task. Raises ``ValueError`` for what Kubernetes would not take, or the plugin not look at.
    """
    if not _LABEL.match(name):
        raise ValueError(f"name: '{name}' cannot be the name of a Deployment; give one of lower-case letters, digits and '-'")
    if policy not in POLICIES:
        raise ValueError(f"policy: expected one of {', '.join(POLICIES)}; got {policy!r}")
    for word, number, least in (("cpus", cpus, 1), ("npus", npus, 0), ("replicas", replicas, 1), ("weight", weight, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ValueError(f"{word}: expected a whole number of {least} or more, since the plugin looks at no others; got {number!r}")
    if template and npus != 1:
        raise ValueError(f"template: a pod gets one hard vNPU, so npus must be 1; got {npus}")
    made = volcano_scheduler.objects(cluster, namespace, plugins, weight)
    amounts = {"cpu": str(cpus), "memory": str(memory), **({str(resource or _resource(hosts, str(template))): str(npus)} if npus else {})}
    # Requests equal to limits make the pod Guaranteed.
    container = {"name": str(name), "image": str(image), "resources": {"requests": amounts, "limits": dict(amounts)}}
    return {
        **made,
        "deployment": _deployment(str(name), container, str(policy), replicas),
        "job": _job(str(name), container, str(policy), replicas),
        "numatopologies": [numatopology(host, topology) for host, topology in sorted(hosts.items()) if topology.get("kubelet")],
    }


def _resource(hosts: Mapping[str, Topology], template: str) -> str:
    npus = [npu for topology in hosts.values() for npu in topology.get("npus") or ()]
    families = ["gpu" if npu.get("kind") == "gpu" else npu.get("family") for npu in npus]
    if template:
        return vnpu_resource(families, template)
    name = resource_of(families)
    if name is None:
        found = "no NPUs" if not npus else "NPUs of an unknown family"
        raise ValueError(f"resource: the hosts have {found}; name the one that is wanted")
    return name


def _deployment(name: str, container: Object, policy: str, replicas: int) -> Object:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels), "annotations": {ANNOTATION: policy}},
                "spec": {"schedulerName": SCHEDULER, "containers": [container]},
            },
        },
    }


def _job(name: str, container: Object, policy: str, replicas: int) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": SCHEDULER,
            "minAvailable": replicas,
            "tasks": [
                {
                    "name": "worker",
                    "replicas": replicas,
                    "topologyPolicy": policy,
                    "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
                }
            ],
        },
    }


def numatopology(node: str, topology: Topology) -> Object:
    """Return what the resource exporter would publish of a node. ``ValueError``: it has no kubelet."""
    kubelet = topology.get("kubelet")
    if not kubelet:
        raise ValueError(f"{node}: there is no kubelet on the host, and a Numatopology describes a node of Kubernetes")
    units = units_of(topology)
    place: dict[str, dict[int, int]] = {
        level: {cpu: number for number, cpus in units.of[level].items() for cpu in cpus_of(cpus)} for level in (NODES, SOCKETS, CORES)
    }
    everything = cpus_of(units.cpus)
    shared = kubelet.get("default_cpus")
    spec: dict[str, Any] = {
        "policies": {"CPUManagerPolicy": kubelet.get("policy", "none"), "TopologyManagerPolicy": kubelet.get("topology_policy", "none")},
        "resReserved": {"cpu": _reserved(kubelet)},
        "numares": {"cpu": {"allocatable": topology["cpus"]["online"] if shared is None else shared, "capacity": len(everything)}},
        "cpuDetail": {
            str(cpu): {"numa": place[NODES][cpu], "socket": place[SOCKETS][cpu], "core": place[CORES][cpu]} for cpu in everything
        },
    }
    if kubelet.get("exclusive"):
        spec["podAllocations"] = _allocations(kubelet["exclusive"])
    return {"apiVersion": "nodeinfo.volcano.sh/v1alpha1", "kind": "Numatopology", "metadata": {"name": str(node)}, "spec": spec}


def _reserved(kubelet: Mapping[str, Any]) -> str:
    if kubelet.get("reserved_cpus"):
        return str(len(expand(kubelet["reserved_cpus"], "reserved CPUs of the kubelet")))
    thousandths = int(kubelet.get("reserved_millicpus") or 0)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _allocations(exclusive: Mapping[str, str]) -> list[Object]:
    """Return the CPUs of containers by pod; those of version 1 of the kubelet's state name no pod and are left out."""
    pods: dict[str, list[Object]] = {}
    for owner, cpus in sorted(exclusive.items()):
        pod, _slash, container = owner.partition("/")
        if container:
            pods.setdefault(pod, []).append({"name": container, "allocations": {"cpu": cpus}})
    return [{"uid": pod, "containerAllocations": containers} for pod, containers in pods.items()]
