# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equal shares of a NUMA node for each card, and what a task gets that holds several."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import _topology

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

MACHINE = {"about", "node_cpus", "siblings", "cores_per_cache", "devices_per_node"}
INPUT = {"machine", "method", "devices_per_node", "reserved", "allowed", "task_devices"}
EXPECTED = {"shares", "cpus", "mems", "cpus_per_node", "error"}
SMT = {"whole_cores": "cores", "id_slices": "threads"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for case in document["cases"]:
        machine = document["machines"][case["input"]["machine"]]
        yield f"{case['id']} {case['note']}", lambda case=case, machine=machine: check(machine, case["input"], case["expected"])


def host(machine: dict, given: dict) -> dict:
    """Return a host of GPUs with the machine's cores and caches."""
    _topology.require_known(machine, MACHINE, "machine")
    nodes = [expand(cpus) for cpus in machine["node_cpus"].values()]
    everything = sorted(cpu for node in nodes for cpu in node)
    if machine["siblings"] == "none":
        cores = [[cpu] for cpu in everything]
    elif machine["siblings"] == "2k and 2k+1":
        cores = [everything[first : first + 2] for first in everything[::2]]
    else:
        half = len(everything) // 2
        assert machine["siblings"] == f"c and c+{half}"
        cores = [[cpu, cpu + half] for cpu in everything[:half]]
    size = machine.get("cores_per_cache", len(cores))
    cards = given.get("devices_per_node", machine["devices_per_node"])
    return _topology.topology(
        machine["node_cpus"],
        [
            {"kind": "gpu", "id": card, "family": "gpu", "pci": f"0000:{card:02x}:00.0", "numa": int(node), "affinity": None}
            for node, members in cards.items()
            for card in members
        ],
        siblings=[compress(core) for core in cores if len(core) > 1],
        caches=[compress(cpu for core in cores[first : first + size] for cpu in core) for first in range(0, len(cores), size)],
    )


def check(machine: dict, given: dict, expected: dict) -> None:
    _topology.require_known(given, INPUT, "input")
    _topology.require_known(expected, EXPECTED, "expected")
    topology = host(machine, given)
    options = {"cpus": given.get("allowed"), "housekeeping": expand(given.get("reserved", "")), "smt": SMT[given["method"]], "min_cpus": 1}
    if "error" in expected:
        with pytest.raises(ValueError):
            plan(topology, repair=False, **options)
        return
    for repair in (True, False):
        made = plan(topology, npus=given.get("task_devices"), repair=repair, **options)
        assert made["strategy"] == "even_split"
        if "shares" in expected:
            assert {str(entry["id"]): entry["pool"] for entry in made["npus"]} == expected["shares"]
        if "cpus" in expected:
            union = {cpu for entry in made["npus"] for cpu in expand(entry["pool"])}
            assert compress(union) == expected["cpus"]
            assert compress({node for entry in made["npus"] for node in expand(entry["mems"])}) == expected["mems"]
            counts = [len(union & set(expand(node["cpus"]))) for node in topology["numa"]]
            assert [count for count in counts if count] == expected.get("cpus_per_node", [count for count in counts if count])
