# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs that npu-smi prints for an NPU and those of the next NUMA node, divided among the NPUs with the same list.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, for A2, 310P and everything but A3 and A5.

1. No affinity at all: global_slice, with a warning.
2. An NPU starts with the allowed CPUs of its affinity, in the order printed. None for an NPU requested: error.
3. If these lie on one node k, the allowed CPUs of node ``(k + 1) mod (number of nodes)`` are added and the list is sorted.
   Looking at a node that does not exist makes it count from then on.
4. NPUs with the same list share it: sorted, equal runs in id order, the remainder to the last of them. A list of one NPU keeps its
   order.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cpus_of, cut, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy, global_slice
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._published import as_printed, candidates, require_all_online

FALLBACK = Sentence("NPU_NUMA_UNKNOWN", "NPU topo affinity not found. action: fallback to global-slice CPU binding.")


def pools(machine: Machine, requested: Collection[Card]) -> Pools:
    if all(card.affinity is None for card in machine.cards):
        slices = global_slice.pools(machine, requested)
        slices.warnings.append(FALLBACK)
        return slices
    require_all_online(machine)
    nodes = {node.id: node.cpus for node in machine.nodes.values() if node.cpus and node.id != NO_NODE}
    sharing: dict[tuple[int, tuple[int, ...]], list[Card]] = {}
    for card, base in candidates(machine, requested):
        if not base:
            raise coded_error(
                "NPU_RULE_FAILS",
                f"{card.name}: CPUs available in 'Cpus_allowed_list' conflict with NUMA affinity. Its affinity is "
                f"{card.affinity or 'not reported'}; none of it can be divided.",
            )
        cpus = with_next_node(base, nodes, machine.usable)
        several = "," in (card.affinity or "") and sum(1 for members in nodes.values() if members & base) > 1
        printed = as_printed(card, base) if several else []
        order = tuple(printed) if printed != sorted(printed) else ()
        sharing.setdefault((cpus, order), []).append(card)
    masks: dict[Card, int] = {}
    in_order: dict[Card, list[int]] = {}
    for (cpus, order), cards in sharing.items():
        masks.update(zip(cards, split(cpus, len(cards)), strict=True))
        if order and len(cards) == 1:
            in_order[cards[0]] = list(order)
    return Pools("topo_affinity", {card: masks[card] for card in machine.cards if card in masks}, in_order)


def with_next_node(cpus: int, nodes: dict[int, int], allowed: int) -> int:
    """Return CPUs of one node with the allowed ones of the next; CPUs of several nodes as they are.

    ``nodes`` are masks by node id; a missing next node is added to it without CPUs, as upstream's defaultdict does.
    """
    touched = [node for node, members in nodes.items() if members & cpus]
    if unknown := cpus & ~union(nodes[node] for node in touched):
        raise coded_error(
            "NPU_RULE_FAILS",
            f"CPU {cpus_of(unknown)[0]} of the affinity is on no NUMA node ({', '.join(map(str, nodes)) or 'none'} are known), "
            "and the published rule stops where it looks for that node",
        )
    return cpus | nodes.setdefault((touched[0] + 1) % len(nodes), 0) & allowed if len(touched) == 1 else cpus


def split(cpus: int, count: int) -> list[int]:
    """Return ``count`` equal runs of CPUs, the last with the remainder."""
    return cut([cpus], [cpus.bit_count() // count] * (count - 1) + [cpus.bit_count()])


STRATEGY = Strategy(pools, families=("a2", "310p", "310", "910", ""), reads_affinity=True)
