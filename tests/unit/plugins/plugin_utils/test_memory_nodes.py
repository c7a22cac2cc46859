# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose memory each node of published machines is, and what slices may use there, from the files of a host to its plan."""

import shutil

import pytest
from tests.simulator.generate import generate

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.table import sentences
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import room_of_nodes
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan


def machine(ids, without, distances, gpus, per_node=16, packages=2, memory=None):
    """Return a description; ``gpus`` are ``(node, memory node)`` in bus order."""
    cards = [{"bdf": "000%d:01:00.0" % number, "node": node, "memory_node": memory_node} for number, (node, memory_node) in enumerate(gpus)]
    return {
        "cpus": {"per_node": per_node, "packages": packages},
        "nodes": {"ids": ids, "without_cpus": without, "distances": distances, "memory_mib": memory or dict.fromkeys(ids, 65536)},
        "gpus": {"name": "NVIDIA GB200", "memory_mib": 189471, "cards": cards},
    }


def rows(ids, distance):
    return [[distance(node, other) for other in ids] for node in ids]


AC922 = [0, 8, 252, 253, 254, 255]
GB200 = [0, 1, 2, 10, 18, 26]
HBM = list(range(16))
OF_GB200 = {0: 0, 1: 1, 2: 0, 10: 0, 18: 1, 26: 1}


def ac922(node, other):
    return 10 if node == other else 40 if {node, other} == {0, 8} else 80


def gb200(node, other):
    if node == other:
        return 10
    far = OF_GB200[node] != OF_GB200[other]
    return (40 if far else 10) if {node, other} <= {0, 1} else 120 if far else 80


def snc4(node, other):
    """Xeon Max: nodes 8-15 are the HBM of nodes 0-7."""
    same, alike = node // 4 % 2 == other // 4 % 2, node % 8 == other % 8
    across = node // 8 != other // 8
    return 10 if node == other else (13 if alike else 14 if same else 23) if across else 12 if same else 21


ON_GB200 = [(0, 2), (0, 10), (1, 18), (1, 26)]
OF_AC922 = machine(AC922, AC922[2:], rows(AC922, ac922), [(0, 255), (0, 254), (8, 253), (8, 252)])
ALL_GB200, THREE_GB200 = (machine(GB200, GB200[2:], rows(GB200, gb200), gpus) for gpus in (ON_GB200, ON_GB200[1:]))
XEON_MAX = machine(HBM, HBM[8:], rows(HBM, snc4), [(0, None), (5, None)])
NEAR = machine([0, 1, 2, 3], [0, 1, 3], {"other": 20}, [(2, None)], packages=1, memory={0: 8664, 1: 5602, 3: 1023})
NPS4 = machine([0, 1, 2, 3], [], {"package": 12}, [(0, None), (1, None), (2, None)], packages=1, memory={1: 65536, 2: 65536})
CXL = machine([0, 1, 2], [2], [[10, 21, 24], [21, 10, 24], [24, 24, 10]], [(0, None), (1, None)])
LAYOUTS = [
    # a machine, whether the driver tells which nodes are its GPUs', the memory nodes of the GPUs with wide, and with strict
    ("AC922", OF_AC922, True, "0,255 0,254 8,253 8,252", None),
    ("GB200", ALL_GB200, True, "0,2 0,10 1,18 1,26", None),
    ("GB200 by distance", ALL_GB200, False, "0,2 0,10 1,18 1,26", None),
    ("AC922 whose distances tell nothing", OF_AC922, False, "0,252-255 0,252-255 8,252-255 8,252-255", "0 0 8 8"),
    ("GB200 with a GPU less than nodes", THREE_GB200, False, "0,2,10 1-2,10,18 1-2,10,26", "0 1,18 1,26"),
    ("Xeon Max, flat, SNC4", XEON_MAX, True, "0-3,8-11 4-7,12-15", "0 5"),
    ("three nodes without CPUs, equally near", NEAR, True, "0-1,3", None),
    ("Threadripper, NPS4", NPS4, True, "1-2 1-2 1-2", "1-2 1 2"),
    ("CXL memory between two sockets", CXL, True, "0,2 1-2", "0 1"),
]


def planned(host, memory):
    topology = gather(host)
    made = plan(topology, memory=memory)
    return topology, made, [entry["memory_nodes"] for entry in made["npus"]]


@pytest.mark.parametrize("description, driver, wide, strict", [row[1:] for row in LAYOUTS], ids=[row[0] for row in LAYOUTS])
def test_memory_nodes_have_owners(tmp_path, description, driver, wide, strict):
    generate(description, tmp_path / "host")
    if not driver:
        shutil.rmtree(tmp_path / "host/proc/driver/nvidia")
    host = Host(str(tmp_path / "host"))
    topology, made, allowed = planned(host, "wide")
    assert allowed == wide.split()
    assert plan_refusals(topology, made, Work()) == []
    assert planned(host, "strict")[2] == (strict or wide).split()
    guessed = [problem for problem in topology["problems"] if "by distance and order" in problem]
    assert bool(guessed) == (not driver and any("gpu" in (node["owner"] or {}) for node in topology["numa"]))


OMITTED = [
    # what the driver tells of GPU 1, and the memory nodes of GPUs 0 and 1
    ("GB200", ALL_GB200, None, ["0,2", "0,10"]),
    ("AC922 whose distances tell nothing", OF_AC922, None, ["0,255", "0,254"]),
    ("a node that is not told", ALL_GB200, "Node: -1\nStatus: offline\n", ["0,2", "0,10"]),
]


@pytest.mark.parametrize("description, status_text, expected", [row[1:] for row in OMITTED], ids=[row[0] for row in OMITTED])
def test_a_gpu_that_the_driver_omits_has_the_node_that_is_left(tmp_path, description, status_text, expected):
    generate(description, tmp_path / "host")
    status = tmp_path / "host/proc/driver/nvidia/gpus/0001:01:00.0/numa_status"
    status.write_text(status_text) if status_text else status.unlink()
    topology, made, allowed = planned(Host(str(tmp_path / "host")), "wide")
    assert (allowed[:2], plan_refusals(topology, made, Work())) == (expected, [])
    assert any("by distance and order" in problem for problem in topology["problems"])
    status.write_text("Node: -1\nStatus: disabled\n")
    owners = {node["id"]: node["owner"] for node in gather(Host(str(tmp_path / "host")))["numa"]}
    assert "gpu" not in (owners[int(expected[1].partition(",")[2])] or {})


def test_a_slice_without_the_memory_of_its_gpu_is_refused(tmp_path):
    generate(OF_AC922, tmp_path / "host")
    nvidia = tmp_path / "host/proc/driver/nvidia"
    (nvidia / "gpus/0001:01:00.0/numa_status").write_text("Node: 251\nStatus: offline\n")
    topology, made, allowed = planned(Host(str(tmp_path / "host")), "wide")
    assert allowed[1] == "0,254", "nobody says any more whose node 254 is"
    assert topology["numa"][2] == {"id": 251, "cpus": "", "memory_mib": 0, "distances": {}, "owner": {"gpu": "0001:01:00.0"}}
    assert [(refusal.code, str(refusal).partition(" is the memory")[0]) for refusal in plan_refusals(topology, made, Work())] == [
        ("NPU_GPU_MEMORY_OUTSIDE", "gpu-1.slice would leave out memory node 251, which")
    ]
    shutil.rmtree(nvidia)
    topology, made, _allowed = planned(Host(str(tmp_path / "host")), "strict")
    assert ["One of nodes 252-255 may be the memory of GPU" in refusal for refusal in plan_refusals(topology, made, Work())] == [True] * 4


def test_the_memory_of_a_gpu_is_named_and_not_the_hosts(tmp_path):
    generate(ALL_GB200, tmp_path / "host")
    host = Host(str(tmp_path / "host"))
    topology, made, _allowed = planned(host, "wide")
    (row,) = [text for title, text in sentences(made, topology) if title == "memory"]
    assert row.startswith("nodes 0,2 (64 GiB, memory of the GPU on 2) for GPU 0, nodes 0,10 (64 GiB")
    room = room_of_nodes(host)
    assert compress(node for node, mib in room.items() if mib) == "0-1" and room[2] == 0
