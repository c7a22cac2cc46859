# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod that gets as many exclusive CPUs as its NPUs' pool has outside interrupts. Which CPUs, the kubelet alone decides.

Exclusive CPUs go to pods of the class Guaranteed with whole CPUs: requests equal to limits, for CPUs and for memory (Kubernetes,
"Control CPU Management Policies on the Node").
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import forecast
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import pod
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = pod.OPTIONS


def recipe(workload: Workload, options: Options) -> Recipe:
    name = pod.name_of(workload)
    reserved = pod.reserved(workload, options)
    made = pod.pod(workload, options, name, len(pod.usable(workload, workload.cpus, reserved)))
    notes = ["The kubelet picks the CPUs: this is the number of CPUs, not their set."]
    if options.devices:
        notes.append(pod.devices_elsewhere(pod.resource(workload, options)))
    if reserved:
        notes.append(f"The kubelet must have {compress(reserved)} in reservedSystemCPUs, and the CPUs for interrupts of all other NPUs.")
    return Recipe(pod.documents(made), [*notes, *(forecast.forecast(workload.topology) if workload.topology else [])])
