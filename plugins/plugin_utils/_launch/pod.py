# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the forms for Kubernetes have in common: a pod of the class Guaranteed, and the CPUs that are not its own."""

from __future__ import annotations

import re
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.drop_in import reserved_cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.pods import resource_of
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import whole_cores
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload

OPTIONS = frozenset({"image", "command", "devices", "memory", "resource", "engine"})
ON_A_NODE = OPTIONS | {"node", "plan"}
UNKNOWN = "RESOURCE"
"""Stands for a resource that only the user can know. It has no domain, so that Kubernetes refuses it."""
_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")


def name_of(workload: Workload) -> str:
    """Return the name of the pod, the claim or the balloon."""
    name = workload.named()
    if not _LABEL.match(name) or len(name) > 63:
        raise ValueError(f"name: '{name}' cannot be a pod's name; give one of lower-case letters, digits and '-'")
    return name


def resource(workload: Workload, options: Options) -> str:
    """Return the name under which the device plugin offers the workload's devices, ``RESOURCE`` where it is not known."""
    return options.resource or resource_of(card.family for card in workload.cards) or UNKNOWN


def devices_elsewhere(name: str) -> str:
    """Return where the user sees the name of a resource."""
    if name == UNKNOWN:
        return "Give topology, or resource: the device plugin names it by the family of the NPU; kubectl describe node shows it."
    return f"{name} is the name that the device plugin gives it; kubectl describe node shows it."


def reserved(workload: Workload, options: Options) -> set[int]:
    """Return the CPUs that no pod may have, as whole cores: for interrupts and housekeeping of the plan, else the workload's own alone."""
    if not options.plan:
        return whole_cores(workload.topology, expand(workload.irq))
    if not workload.topology:
        raise ValueError(f"{workload.title}: whole cores are reserved, which a plan does not have; give topology along with plan")
    return set(expand(reserved_cpus(options.plan, workload.topology)))


def usable(workload: Workload, cpus: str, taken: set[int]) -> set[int]:
    """Return CPUs without those that are reserved. Raises ``ValueError`` where none is left."""
    left = set(expand(cpus)) - taken
    if not left:
        raise ValueError(f"{workload.title}: nothing of its CPUs {cpus} is left next to interrupts on {compress(taken)}")
    return left


def only_without_cpu_manager(workload: Workload, who: str) -> list[str]:
    """Return what the kubelet has to be told. Raises ``ValueError`` where it would give the same CPUs away."""
    kubelet = workload.topology.get("kubelet")
    if kubelet and kubelet.get("policy") == "static":
        raise ValueError(
            f"{workload.title}: the kubelet of this host has the static CPU manager, and {who} must be alone in giving CPUs to pods; set "
            "cpuManagerPolicy to none (npu_affinity_kubelet_enabled: false)"
        )
    return [] if kubelet else [f"The kubelet of the node must have cpuManagerPolicy: none, or it gives the same CPUs away as {who}."]


def pod(workload: Workload, options: Options, name: str, cpus: int) -> dict[str, Any]:
    """Return a pod whose only container asks for so many CPUs, and for the workload's devices."""
    resources = {"cpu": str(cpus), "memory": options.memory}
    if options.devices:
        if not workload.cards:
            raise ValueError(f"{workload.title} names no NPU or GPU, so their number is unknown; give npus, or devices=false")
        resources[resource(workload, options)] = str(len(workload.cards))
    container = {
        "name": name,
        "image": options.image,
        **({"command": [word.replace("$(", "$$(") for word in options.command]} if options.command else {}),
        **({"env": [{"name": key, "value": value} for key, value in options.switches.items()]} if options.switches else {}),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def documents(*objects: dict[str, Any]) -> str:
    """Return objects as one text for ``kubectl apply``."""
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, width=1000) for one in objects)
