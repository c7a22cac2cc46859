# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equal whole cores for every card, within its NUMA node.

Source: Hao Liang, "Customize Kubernetes cpuset strategy in GPU container task" (2024-12-08), with whole cores in place of the literal
id slices, which put two cards on the threads of the same cores; ``smt: threads`` gives those slices.

1. All cards of a node count, requested or not, so a share never moves when neighbours come and go.
2. Reserved CPUs have been taken away before, as whole cores.
3. Cores are ordered by last-level cache, then lowest thread; left-over cores go to the lowest ids.
4. A card without NUMA node has no share, and neither has one on a node with fewer cores than cards.

Nodes without cards stay idle.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import equal_shares
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy


def pools(machine: Machine, requested: Collection[Card]) -> Pools:
    cards: dict[int | None, list[Card]] = {}
    for card in machine.cards:
        cards.setdefault(card.numa if card.numa in machine.nodes else None, []).append(card)
    shares: dict[Card, int] = {}
    for node, members in cards.items():
        units = [] if node is None else machine.units(machine.nodes[node].cpus & machine.usable)
        count = sum(map(int.bit_count, units))
        if count >= len(members):
            shares.update(zip(members, equal_shares(machine, units, len(members)), strict=True))
        elif any(card in requested for card in members):
            where = "no NUMA node is known for them" if node is None else f"NUMA node {node} has {count} usable cores for them"
            raise coded_error("NPU_RULE_FAILS", f"{cards_named(members)} cannot be given equal shares of a NUMA node: {where}")
    return Pools("even_split", {card: shares[card] for card in machine.cards if card in shares})


STRATEGY = Strategy(pools, families=("gpu",), adjacent_nodes=False)
