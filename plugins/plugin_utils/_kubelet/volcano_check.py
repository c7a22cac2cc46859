# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why Volcano's numa-aware plugin would ignore a manifest, and why the kubelet would give its pods no CPUs of their own.

Rules: volcano-sh/volcano@ed72c7c8 ``pkg/scheduler/plugins/numaaware`` (Guaranteed pods with whole CPUs, the same policy as the node);
Kubernetes, "Control CPU Management Policies on the Node" and "Pod Quality of Service Classes" (every container has limits for CPU and
memory, equal to its requests; a missing request takes its limit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.volcano import ANNOTATION, SCHEDULER

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

_UNITS = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


class Template(NamedTuple):
    """Pods of one kind: what they are called, their specification, topology policy and scheduler."""

    title: str
    spec: Mapping[str, Any]
    policy: Any
    scheduler: Any


def volcano_check(manifest: Mapping[str, Any], hosts: Mapping[str, Topology] | None = None) -> list[str]:
    """Return sentences on what is wrong with a Pod, a workload with a pod template or a Volcano job; none when all is well.

    ``hosts`` maps names of nodes to topologies: one of them has to have the static CPU manager and the policy of the pods. Raises
    ``ValueError`` for what holds no pods.
    """
    return [sentence for template in _templates(manifest) for sentence in _findings(template, hosts)]


def _templates(manifest: object) -> list[Template]:
    if not isinstance(manifest, Mapping) or not isinstance(manifest.get("spec"), Mapping):
        raise ValueError(f"expected a manifest with kind and spec; got {type(manifest).__name__}")
    spec = manifest["spec"]
    title = f"{manifest.get('kind')} {(manifest.get('metadata') or {}).get('name')}"
    if "tasks" in spec:
        scheduler = spec.get("schedulerName", SCHEDULER)
        return [
            Template(f"{title}, task {task.get('name')}", task["template"]["spec"], task.get("topologyPolicy"), scheduler)
            for task in spec["tasks"]
        ]
    pod = manifest if "containers" in spec else spec.get("template")
    if not isinstance(pod, Mapping) or not isinstance(pod.get("spec"), Mapping):
        raise ValueError(f"{title} has neither containers nor a pod template nor tasks; give a Pod, a workload or a Volcano job")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return [Template(title, pod["spec"], annotations.get(ANNOTATION), pod["spec"].get("schedulerName"))]


def _findings(template: Template, hosts: Mapping[str, Topology] | None) -> Iterator[str]:
    if template.scheduler != SCHEDULER:
        yield f"{template.title}: schedulerName is {template.scheduler or 'not set'}; only {SCHEDULER} has the numa-aware plugin."
    if template.policy is None:
        yield f"{template.title} has no topology policy; set the annotation {ANNOTATION}, or topologyPolicy of a task of a Volcano job."
    elif template.policy not in POLICIES:
        yield f"{template.title}: topology policy {template.policy!r} is not known; known are {', '.join(POLICIES)}."
    elif hosts is not None and template.policy != "none":
        yield from _nodes(template, hosts)
    for container in [*template.spec.get("containers", ()), *template.spec.get("initContainers", ())]:
        yield from _resources(f"{template.title}, container {container.get('name')}", container.get("resources") or {})


def _nodes(template: Template, hosts: Mapping[str, Topology]) -> Iterator[str]:
    kubelets = [(name, topology.get("kubelet")) for name, topology in sorted(hosts.items())]
    policies = {name: (kubelet.get("policy"), kubelet.get("topology_policy")) for name, kubelet in kubelets if kubelet}
    if ("static", template.policy) not in policies.values():
        listed = ", ".join(f"{name} {cpus} and {topology}" for name, (cpus, topology) in policies.items()) or "no node has a kubelet"
        yield (
            f"{template.title} wants topology policy {template.policy}, and no node has it with the static CPU manager: {listed}. "
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
