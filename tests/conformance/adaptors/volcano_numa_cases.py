# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hints, CPU choice, hosts and scores of Volcano's numa-aware plugin."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import _topology

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.units import units
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place

FIELDS = {
    "hints": ({"request", "capacity", "free"}, {"hints"}),
    "allocation": ({"machine", "free_cpus", "request", "hint_nodes"}, {"cpus"}),
    "placement": ({"nodes", "request", "policy", "weight"}, {"node", "fitting", "scores"}),
    "scores": ({"numa_nodes_used", "weight"}, {"scores"}),
}
DOCUMENT = {"about", "sources", "origin", "score_rule", "document_oddity", "node_filter", "machines", "numatopology_crd", "exporter_reads"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    _topology.require_known(document, DOCUMENT | set(FIELDS), "the document")
    for name in FIELDS:
        for case in document.get(name, ()):
            machine = document["machines"].get(case["input"].get("machine"))
            yield f"{name} {case['id']} {case['note']}".strip(), lambda name=name, case=case, machine=machine: check(name, case, machine)


def check(name: str, case: dict, machine: dict | None) -> None:
    _topology.require_known(case["input"], FIELDS[name][0], "input")
    _topology.require_known(case["expected"], FIELDS[name][1], "expected")
    CHECKS[name](case["input"], case["expected"], machine)


def hints(given: dict, expected: dict, machine: None) -> None:
    pytest.skip("the collection does not list all hints for CPUs: it merges those that decide")


def allocation(given: dict, expected: dict, machine: dict) -> None:
    _topology.require_known(machine, {"cpus", "core_of_cpu", "numa_of_cpu"}, "machine")
    nodes: dict[int, int] = {}
    cores: dict[int, int] = {}
    for cpu, (core, node) in enumerate(zip(machine["core_of_cpu"], machine["numa_of_cpu"], strict=True)):
        cores[core] = cores.get(core, 0) | 1 << cpu
        nodes[node] = nodes.get(node, 0) | 1 << cpu
    model = units(mask(machine["cpus"]), nodes, (), (), cores.values())
    try:
        chosen = text_of(allocate(model, mask(given["free_cpus"]), given["request"], nodes=given["hint_nodes"]))
    except ValueError:
        chosen = ""
    assert chosen == expected["cpus"]


def placement(given: dict, expected: dict, machine: None) -> None:
    for node in given["nodes"].values():
        _topology.require_known(node, {"policy", "capacity", "free"}, "node")
    found = place(given["nodes"], {"cpus": given["request"], "policy": given["policy"], "weight": given["weight"]})
    assert [task["host"] for task in found["tasks"]] == ([] if expected["node"] is None else [expected["node"]])
    assert {entry["host"]: entry["numa"] for entry in found["hosts"]} == expected["fitting"]
    assert {entry["host"]: entry["scores"]["numa"] for entry in found["hosts"]} == expected["scores"]
    assert {entry["host"] for entry in found["refused"]} == set(given["nodes"]) - set(expected["fitting"])


def scores(given: dict, expected: dict, machine: None) -> None:
    most = max(given["numa_nodes_used"].values())
    found = {name: _place.numa_score(used, most, given["weight"]) for name, used in given["numa_nodes_used"].items()}
    assert found == expected["scores"]


CHECKS = {"hints": hints, "allocation": allocation, "placement": placement, "scores": scores}
