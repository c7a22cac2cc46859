# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a kubelet configuration that keeps pods off a workload that runs next to Kubernetes.

Never AllowedCPUs= on kubepods.slice or below, and never a change of the CPU manager's state file (kubernetes issues 104147, 84333).
"""

from __future__ import annotations

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import gates
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import whole_cores
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS: frozenset[str] = frozenset()
WANTED = ("full-pcpus-only", "strict-cpu-reservation")


def recipe(workload: Workload, options: Options) -> Recipe:
    kubelet = workload.topology.get("kubelet") or {}
    chosen = [option for option in WANTED if gates.knows(option, gates.CPU_MANAGER, kubelet)]
    gated = gates.needed("cpuManagerPolicyOptions", chosen, gates.CPU_MANAGER, "CPUManager", kubelet)
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(chosen, "true"),
        "reservedSystemCPUs": compress(whole_cores(workload.topology, expand(workload.cpus))),
        "topologyManagerPolicy": "single-numa-node" if len(expand(workload.nearest)) == 1 else "restricted",
        **({"featureGates": gated} if gated else {}),
    }
    unsure = "strict-cpu-reservation came with Kubernetes 1.32, behind a feature gate until 1.33: leave it out before."
    return Recipe(
        yaml.safe_dump(configuration, sort_keys=False, width=1000),
        [
            "Merge it into /var/lib/kubelet/config.yaml. Add to reservedSystemCPUs what every other slice outside Kubernetes has, the CPUs "
            "for interrupts of all NPUs, and housekeeping.",
            "In this order: drain the node, stop kubelet, change the file, remove /var/lib/kubelet/cpu_manager_state (and "
            "memory_manager_state), start kubelet, uncordon.",
            *([] if kubelet.get("version") else [unsure]),
        ],
        starts=False,
    )
