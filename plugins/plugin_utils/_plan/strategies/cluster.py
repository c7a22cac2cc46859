# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of eight cores on the NUMA node of the NPU, next to the CPUs of the poll threads.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, for A5 (Ascend 950).

1. The allowed CPUs of node 0 except CPU 0 belong to the threads ``uvb_poll_window_thread``.
2. The CPUs of a cluster are 8 times the threads of a core, which must be 1 or 2.
3. The affinity of every NPU that takes part must lie on one node.
4. The other allowed CPUs of a node, ascending, are cut into clusters; its i-th NPU gets the i-th. Too few: nothing is bound at all.
5. There are no roles and there is no minimum.

An NPU on node 0 can therefore never be bound. Where this rule binds nothing, it says why in a warning.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cut
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._published import as_printed, candidates, require_all_online

MAX_CORES = 8


def poll_cpus(machine: Machine) -> int:
    return machine.nodes[0].cpus & machine.usable & ~1 if 0 in machine.nodes else 0


def pools(machine: Machine, requested: Collection[Card]) -> Pools:
    require_all_online(machine)
    if all(card.affinity is None for card in machine.cards):
        return _no_clusters("NPU topo affinity not found.")
    if machine.threads_per_core not in (1, 2):
        return _no_clusters(f"unsupported Thread(s) per core: {machine.threads_per_core}.")
    cards: dict[int, list[Card]] = {}
    for card, base in candidates(machine, requested):
        nodes = [node.id for node in machine.nodes.values() if node.cpus & base]
        if len(nodes) != 1 or nodes == [NO_NODE]:
            return _no_clusters(f"invalid topo affinity. npu={card.id}, cpus={as_printed(card, base)}.")
        cards.setdefault(nodes[0], []).append(card)
    size = MAX_CORES * machine.threads_per_core
    made: dict[Card, int] = {}
    for node, members in cards.items():
        cpus = machine.nodes[node].cpus & machine.usable & ~poll_cpus(machine)
        clusters = cpus.bit_count() // size
        if clusters < len(members):
            npus = [card.id for card in members]
            return _no_clusters(f"insufficient CPU clusters. numa={node}, clusters={clusters}, npus={npus}.")
        made.update(zip(members, cut([cpus], [size] * len(members)), strict=True))
    return Pools("cluster", {card: made[card] for card in machine.cards if card in made})


def _no_clusters(why: str) -> Pools:
    return Pools("cluster", {}, warnings=[Sentence("NPU_RULE_FAILS", f"[cpu_bind_ascend_950] {why} action: skip worker CPU binding.")])


STRATEGY = Strategy(pools, families=("a5",), max_cores=MAX_CORES, reads_affinity=True)
