# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the static CPU manager of a kubelet would give to one container for every card, which come in the order of their ids.

Each asks for the same number of CPUs, whole cores unless threads are divided. Which card a container uses is not looked at: the CPU
manager knows nothing of it, and without a topology manager nobody tells it.
"""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import Units
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools

Take = Callable[[Units, int, int, int], int]
"""Return so many of the available CPUs, in groups of so many: ``take(units, available, count, group)``."""


def containers(machine: Machine, name: str, take: Take) -> Pools:
    """Return a pool for every card. ``ValueError`` with the kubelet's sentence: there is not one core for each."""
    nodes = {node.id: node.cpus for node in machine.nodes.values()}
    model = units(machine.online, nodes, machine.sockets, machine.caches, machine.siblings.values())
    group = machine.threads_per_unit
    count = machine.usable.bit_count() // len(machine.cards) // group * group
    if not count:
        needed = group * len(machine.cards)
        raise ValueError(
            Sentence(
                "NPU_TOO_FEW_CPUS",
                f"not enough cpus available to satisfy request: requested={needed}, available={machine.usable.bit_count()}",
            )
        )
    available = machine.usable
    pools = {}
    for card in machine.cards:
        pools[card] = take(model, available, count, group)
        available &= ~pools[card]
    return Pools(name, pools)
