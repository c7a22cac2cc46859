# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that gets as many exclusive CPUs as its NPUs' pool has outside interrupts. Which CPUs, the kubelet alone decides.

Exclusive CPUs go to pods of the class Guaranteed with whole CPUs: requests equal to limits, for CPUs and for memory (Kubernetes,
"Control CPU Management Policies on the Node").

This module is private to the collection.
"""

from __future__ import annotations

import re

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import whole_cores
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"image", "command", "devices", "memory", "resource", "engine"})
RESOURCES = {"npu": "huawei.com/Ascend910", "gpu": "nvidia.com/gpu"}
_LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")


def recipe(workload: Workload, options: Options) -> Recipe:
    name = workload.named()
    if not _LABEL.match(name) or len(name) > 63:
        raise ValueError(f"name: '{name}' cannot be a pod's name; give one of lower-case letters, digits and '-'")
    reserved = whole_cores(workload.topology, expand(workload.irq))
    count = len(set(expand(workload.cpus)) - reserved)
    if not count:
        raise ValueError(f"{workload.title}: nothing of its CPUs {workload.cpus} is left beside interrupts on {compress(reserved)}")
    resources = {"cpu": str(count), "memory": options.memory}
    notes = ["The kubelet picks the CPUs: this is the number of CPUs, not their set."]
    if options.devices:
        if not workload.cards:
            raise ValueError(f"{workload.title} names no NPU, so that their number is not known; give npus, or devices=false")
        resources[options.resource or RESOURCES[workload.kind]] = str(len(workload.cards))
        notes.append("The name of the device resource is that of the device plugin; kubectl describe node shows it.")
    if reserved:
        notes.append(f"The kubelet must have {compress(reserved)} in reservedSystemCPUs, and the CPUs for interrupts of all other NPUs.")
    container = {
        "name": name,
        "image": options.image,
        **({"command": [word.replace("$(", "$$(") for word in options.command]} if options.command else {}),
        **({"env": [{"name": key, "value": value} for key, value in options.switches.items()]} if options.switches else {}),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    return Recipe(yaml.safe_dump(pod, sort_keys=False, width=1000), notes)
