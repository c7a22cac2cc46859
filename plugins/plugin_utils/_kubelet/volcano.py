# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of Kubernetes for Volcano's numa-aware plugin: its scheduler's configuration, samples, what the exporter says of hosts, and
why the plugin would ignore a manifest, or the kubelet give its pods no CPUs of their own.

Sources: volcano-sh/volcano@ed72c7c8, ``installer``, ``pkg/scheduler/conf/scheduler_conf.go`` (what a plugin takes) and the CRDs of Job and
Numatopology; volcano-sh/resource-exporter@a4bd4247 (what it publishes); Huawei Cloud CCE, "NUMA Affinity Scheduling" (2025-02-18), with the
annotation and ``topologyPolicy``, a ConfigMap for add-ons before 1.7.1, and a parameter with other tiers from there on. Before 1.7.1, the
expert mode of the add-on's settings switches the resource exporter on. Rules: ``pkg/scheduler/plugins/numaaware`` (Guaranteed pods with
whole CPUs, the same policy as the node); Kubernetes, "Control CPU Management Policies on the Node" and "Pod Quality of Service Classes"
(every container has limits for CPU and memory, equal to its requests; a missing request takes its limit).

Numbers of cores are those of their lowest CPU, which are unique on a host; the exporter has the kernel's, unique within a socket.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import CORES, NODES, SOCKETS
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.pods import resource_of, vnpu_resource
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES, units_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Kubelet, Topology

ANNOTATION = "volcano.sh/numa-topology-policy"
SCHEDULER = "volcano"
Object = dict[str, Any]
Tiers = Sequence[Sequence[str | Object]]
_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")

NUMA_AWARE = "numa-aware"
_SWITCH = re.compile(r"enable[A-Z][A-Za-z]*\Z")
_EXPECTED = "a list of tiers, each a list of plugins, which are names or dictionaries of name, arguments and enable switches"


class Cluster(NamedTuple):
    """Where a cluster keeps the configuration of Volcano's scheduler, and with what it starts; ``addon`` are the tiers of an add-on."""

    namespace: str
    key: str
    actions: str
    tiers: Tiers
    addon: Sequence[Sequence[str]] = ()


_FIRST = ("priority", "gang", "conformance")
_GPU = ("cce-gpu-topology-predicate", "cce-gpu-topology-priority", "cce-gpu")
_VOLUMES = ("nodelocalvolume", "nodeemptydirvolume", "nodeCSIscheduling")
_NETWORK = {"name": "networkresource", "arguments": {"NetworkType": "vpc-router"}}
CLUSTERS = {
    "volcano": Cluster(
        "volcano-system",
        "volcano-scheduler.conf",
        "enqueue, allocate, backfill",
        (_FIRST, ("drf", "predicates", "proportion", "nodeorder", NUMA_AWARE)),
    ),
    "cce": Cluster(
        "kube-system",
        "default-scheduler.conf",
        "allocate, backfill, preempt",
        (_FIRST, ("overcommit", "drf", "predicates", "nodeorder"), _GPU, (*_VOLUMES, _NETWORK, NUMA_AWARE)),
        (_FIRST, ("drf", "predicates", "nodeorder"), (*_GPU, NUMA_AWARE), (*_VOLUMES, "networkresource")),
    ),
}
EXPERT = {
    "plugins": {
        "eas_service": {
            **dict.fromkeys(("availability_zone_id", "driver_id", "enable", "endpoint", "flavor_id", "network_type"), ""),
            **dict.fromkeys(("network_virtual_subnet_id", "pool_id", "project_id", "secret_name"), ""),
            "enable": "false",
            "secret_name": "eas-service-secret",
        }
    },
    "resource_exporter_enable": "true",
}
"""What CCE's expert mode takes (Settings, Scheduling, Volcano); its values are texts."""


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
    plugins: Tiers | None = None,
    template: str = "",
) -> Object:
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
    made = _scheduler(cluster, namespace, plugins, weight)
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
        raise ValueError(f"resource: the hosts have {'NPUs of an unknown family' if npus else 'no NPUs'}; name the one that is wanted")
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
    """Return what the resource exporter would publish of a node."""
    kubelet = topology.get("kubelet") or {}
    units = units_of(topology)
    place: dict[str, dict[int, int]] = {
        level: {cpu: number for number, cpus in units.of[level].items() for cpu in cpus_of(cpus)} for level in (NODES, SOCKETS, CORES)
    }
    everything = cpus_of(units.cpus)
    shared = kubelet.get("default_cpus")
    spec: Object = {
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


def _reserved(kubelet: Kubelet) -> str:
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


def _scheduler(cluster: str, namespace: str, plugins: object, weight: int) -> Object:
    """Return ``scheduler``, the ConfigMap, and for a cluster with an add-on its parameter ``addon`` and ``expert``, its expert mode.

    ``plugins`` take the place of the cluster's own tiers. Raises ``ValueError`` for an unknown cluster, and plugins of another shape.
    """
    if cluster not in CLUSTERS:
        raise ValueError(f"cluster: expected one of {', '.join(CLUSTERS)}; got {cluster!r}")
    kept = CLUSTERS[cluster]
    configuration = {"actions": kept.actions, "tiers": tiers(kept.tiers if plugins is None else plugins, weight)}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "volcano-scheduler-configmap", "namespace": str(namespace or kept.namespace)},
        "data": {kept.key: yaml.safe_dump(configuration, sort_keys=False)},
    }
    if not kept.addon:
        return {"scheduler": config_map}
    parameter = {"actions": kept.actions, "tiers": tiers(kept.addon if plugins is None else plugins, weight)}
    return {"scheduler": config_map, "addon": {"default_scheduler_conf": parameter}, "expert": copy.deepcopy(EXPERT)}


def tiers(given: object, weight: int) -> list[Object]:
    """Return tiers as the scheduler reads them. The numa-aware plugin has its weight, and joins the last tier where none names it."""
    parsed = [[_plugin(plugin) for plugin in _items(tier, given)] for tier in _items(given, given)]
    names = [plugin["name"] for tier in parsed for plugin in tier]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"plugins: {', '.join(twice)} is named more than once; name each plugin in one tier")
    if NUMA_AWARE not in names:
        parsed[-1].append({"name": NUMA_AWARE})
    for plugin in (plugin for tier in parsed for plugin in tier if plugin["name"] == NUMA_AWARE):
        plugin["arguments"] = {"weight": weight, **plugin.get("arguments", {})}
    return [{"plugins": tier} for tier in parsed]


def _items(given: object, plugins: object) -> list[Any]:
    if isinstance(given, Mapping) and set(given) == {"plugins"}:
        given = given["plugins"]
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise ValueError(f"plugins: expected {_EXPECTED}; got {plugins!r}")
    items = list(given)
    if not items:
        raise ValueError(f"plugins: there is a tier without plugins, or no tier; expected {_EXPECTED}; got {plugins!r}")
    return items


def _plugin(given: object) -> Object:
    """Return a plugin as plain data. Raises ``ValueError`` for a name, an argument or a switch that the scheduler does not read."""
    plugin = {"name": given} if isinstance(given, str) else given
    if not isinstance(plugin, Mapping) or not isinstance(plugin.get("name"), str) or not plugin["name"].strip():
        raise ValueError(f"plugins: expected a name such as 'gang', or a dictionary with name; got {given!r}")
    parsed: Object = {"name": str(plugin["name"])}
    for key, value in plugin.items():
        if key == "arguments":
            if not isinstance(value, Mapping):
                raise ValueError(f"plugins: the arguments of {parsed['name']} are a dictionary; got {value!r}")
            parsed["arguments"] = _plain(value, parsed["name"])
        elif isinstance(key, str) and _SWITCH.match(key):
            if not isinstance(value, bool):
                raise ValueError(f"plugins: {key} of {parsed['name']} is true or false; got {value!r}")
            parsed[str(key)] = value
        elif key != "name":
            raise ValueError(f"plugins: {parsed['name']} has no {key!r}; it has name, arguments and switches such as enablePreemptable")
    return parsed


def _plain(value: object, name: str) -> Any:
    """Return an argument as data that YAML can hold, whatever Ansible made of it."""
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"plugins: the names of the arguments of {name} are texts; got {wrong[0]!r}")
        return {str(key): _plain(one, name) for key, one in value.items()}
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Sequence):
        return [_plain(one, name) for one in value]
    raise ValueError(f"plugins: expected text, numbers, switches, lists and dictionaries as arguments of {name}; got {value!r}")


_UNITS = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def volcano_check(manifest: Mapping[str, Any], hosts: Mapping[str, Topology] | None = None) -> list[str]:
    """Return sentences on what is wrong with a Pod, a workload with a pod template or a Volcano job; none when all is well.

    ``hosts`` maps names of nodes to topologies: one of them has to have the static CPU manager and the policy of the pods. Raises
    ``ValueError`` for what holds no pods.
    """
    return [sentence for template in _templates(manifest) for sentence in _findings(*template, hosts)]


def _templates(manifest: object) -> list[tuple[str, Object, object, object]]:
    """Return the title, specification, topology policy and scheduler of every kind of pods."""
    if not isinstance(manifest, Mapping) or not isinstance(manifest.get("spec"), Mapping):
        raise ValueError(f"expected a manifest with kind and spec; got {type(manifest).__name__}")
    spec = manifest["spec"]
    title = f"{manifest.get('kind')} {(manifest.get('metadata') or {}).get('name')}"
    if "tasks" in spec:
        scheduler = spec.get("schedulerName", SCHEDULER)
        return [
            (f"{title}, task {task.get('name')}", task["template"]["spec"], task.get("topologyPolicy"), scheduler) for task in spec["tasks"]
        ]
    pod = manifest if "containers" in spec else spec.get("template")
    if not isinstance(pod, Mapping) or not isinstance(pod.get("spec"), Mapping):
        raise ValueError(f"{title} has neither containers nor a pod template nor tasks; give a Pod, a workload or a Volcano job")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return [(title, pod["spec"], annotations.get(ANNOTATION), pod["spec"].get("schedulerName"))]


def _findings(title: str, spec: Object, policy: object, scheduler: object, hosts: Mapping[str, Topology] | None) -> Iterator[str]:
    if scheduler != SCHEDULER:
        yield f"{title}: schedulerName is {scheduler or 'not set'}; only {SCHEDULER} has the numa-aware plugin."
    if policy is None:
        yield f"{title} has no topology policy; set the annotation {ANNOTATION}, or topologyPolicy of a task of a Volcano job."
    elif policy not in POLICIES:
        yield f"{title}: topology policy {policy!r} is not known; known are {', '.join(POLICIES)}."
    elif hosts is not None and policy != "none":
        yield from _nodes(title, policy, hosts)
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        yield from _resources(f"{title}, container {container.get('name')}", container.get("resources") or {})


def _nodes(title: str, policy: object, hosts: Mapping[str, Topology]) -> Iterator[str]:
    kubelets = [(name, topology.get("kubelet")) for name, topology in sorted(hosts.items())]
    policies = {name: (kubelet.get("policy"), kubelet.get("topology_policy")) for name, kubelet in kubelets if kubelet}
    if ("static", policy) not in policies.values():
        listed = ", ".join(f"{name} {cpus} and {topology}" for name, (cpus, topology) in policies.items()) or "no node has a kubelet"
        yield (
            f"{title} wants topology policy {policy}, and no node has it with the static CPU manager: {listed}. "
            "Set both policies on a node, with role kubelet for example."
        )


def _resources(title: str, resources: Mapping[str, Any]) -> Iterator[str]:
    limits = resources.get("limits") or {}
    requests = {**limits, **(resources.get("requests") or {})}
    for name in ("cpu", "memory"):
        limit, request = _quantity(limits.get(name)), _quantity(requests.get(name))
        if limit is None or request is None or limit <= 0:
            yield f"{title}: limit for {name} is {limits.get(name, 'not set')}; a pod is Guaranteed only with limits for cpu and memory."
        elif limit != request:
            yield f"{title}: {name} is requested as {requests[name]} and limited to {limits[name]}; a Guaranteed pod has equal ones."
        elif name == "cpu" and limit != int(limit):
            yield f"{title}: {limits[name]} CPUs are not a whole number, and the kubelet gives CPUs of their own only to whole ones."


def _quantity(value: object) -> Decimal | None:
    """Return a quantity of Kubernetes as a number, None for what is none."""
    text = "" if value is None or isinstance(value, bool) else str(value)
    number = text.rstrip("numkMGTPEi")
    try:
        return Decimal(number) * _UNITS[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return None
