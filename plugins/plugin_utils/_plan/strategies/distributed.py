# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's distribute-cpus-across-numa for equal containers: equal parts of as few NUMA nodes as can give them.

Source: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/cpumanager/cpu_assignment.go``, restated in ``_kubelet.cpus``.

No product has this rule; it is there to compare with, and for hosts that run a kubelet. Containers come by the id of their card, whose
NUMA node is not looked at. One that fits a NUMA node gets all of its CPUs there, on the node that leaves all nodes most alike; larger
ones are split evenly.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._kubelet import containers

FAMILIES = ()
USE_ADJACENT_NODES = True
MAX_CORES = None
READS_AFFINITY = False


def pools(machine: Machine, asked: Collection[Card]) -> Pools:
    return containers(machine, "distributed", cpus.distributed)
