# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the kubelet's topology manager merges hints, and what its policies admit."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

from adaptors import _topology

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import topology_manager

INPUT = {"numa_nodes", "policies", "prefer_closest_numa", "distances", "providers"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    _topology.require_known(document, {"about", "sources", "origin", "fields", "cases"}, "the document")
    for case in document["cases"]:
        yield f"{case['id']} {case['note']}", lambda case=case: check(case["input"], case["expected"])


def check(given: dict, expected: dict) -> None:
    _topology.require_known(given, INPUT, "input")
    _topology.require_known(expected, {"nodes", "preferred", "admit"}, "expected")
    bits = {node: 1 << position for position, node in enumerate(given["numa_nodes"])}
    resources = [
        None if hints is None else [hint(bits, one) for one in hints]
        for provider in given["providers"]
        for hints in (provider or {"any": None}).values()
    ]
    ranking = topology_manager.Ranking(given["distances"] if given["prefer_closest_numa"] else None)
    for policy in given["policies"]:
        merged = topology_manager.merge(resources, sum(bits.values()), policy, ranking)
        nodes = None if merged.nodes is None else [node for node, bit in bits.items() if merged.nodes & bit]
        assert topology_manager.admits(policy, merged) == expected["admit"][policy], policy
        if policy == "none" or (policy == topology_manager.SINGLE and len(given["policies"]) > 1 and not expected["admit"][policy]):
            continue  # the expected set is that of the other policies
        assert (nodes, merged.preferred) == (expected["nodes"], expected["preferred"]), policy


def hint(bits: dict, given: dict) -> topology_manager.Hint:
    _topology.require_known(given, {"nodes", "preferred"}, "hint")
    nodes = None if given["nodes"] is None else sum(bits[node] for node in given["nodes"])
    return topology_manager.Hint(nodes, given["preferred"])
