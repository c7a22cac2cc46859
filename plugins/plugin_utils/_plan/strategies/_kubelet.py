# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the static CPU manager of a kubelet would give to one container for every card, which come in the order of their ids.

Source: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/cpumanager/cpu_assignment.go``, restated in ``_kubelet.cpus``.

No product has these rules; they are there to compare with, and for hosts that run a kubelet. Each container asks for the same number of
CPUs, whole cores unless threads are divided. Which card it uses is not looked at: the CPU manager knows nothing of it, and without a
topology manager nobody tells it.
"""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools


def containers(machine: Machine, name: str, take: Callable[[cpus.Units, int, int, int], int]) -> Pools:
    """Return a pool for every card, by ``take(units, available, count, group)``. ``ValueError`` with the kubelet's sentence: too few."""
    nodes = {node.id: node.cpus for node in machine.nodes.values()}
    cores = (machine.whole_cores(1 << core) for core in set(machine.core_of.values()))
    model = units(machine.online, nodes, machine.sockets, machine.caches, cores)
    group, available = machine.threads_per_unit, machine.usable
    count = available.bit_count() // len(machine.cards) // group * group
    if not count:
        needed = group * len(machine.cards)
        raise coded_error(
            "NPU_TOO_FEW_CPUS", f"not enough cpus available to satisfy request: requested={needed}, available={available.bit_count()}"
        )
    pools = {}
    for card in machine.cards:
        pools[card] = take(model, available, count, group)
        available &= ~pools[card]
    return Pools(name, pools)
