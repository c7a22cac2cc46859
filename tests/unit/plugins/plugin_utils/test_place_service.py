# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of inference services: next to each other in SuperPods and racks, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import racks as _racks
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import services


def fleet(title, racks, busy=()):
    """Return hosts with 8 NPUs: ``racks`` are ``{(SuperPod, rack): hosts}``, and hosts without a rack have None."""
    made = {}
    for (pod, rack), count in racks.items():
        for number in range(count):
            topology = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=16, family="a5" if "950" in title else "a3")
            topology["machine"]["product"] = title
            name = f"p{pod}" + ("" if rack is None else f"r{rack}") + f"h{number}"
            for npu in topology["npus"]:
                npu["busy"] = name in busy and npu["id"] in busy[name]
            made[name] = {"topology": topology, "labels": {"superpod": pod, **({} if rack is None else {"rack": rack})}}
    return made


A3, A950 = "Atlas 9000 A3 SuperPoD", "Atlas 950 SuperPoD"
PREFILL = {"name": "prefill", "npus": 8, "replicas": 2}
DECODE = {"name": "decode", "npus": 8, "replicas": 3}
ROWS = [
    ("one SuperPod that holds all", A3, {(0, None): 4, (1, None): 5}, [PREFILL, DECODE], "decode p1 p1 p1 prefill p1 p1"),
    ("another where the first is full", A3, {(0, None): 2, (1, None): 4}, [PREFILL, DECODE], "decode p1 p1 p1 prefill p0 p0"),
    ("several instances", A3, {(0, None): 4, (1, None): 3}, [{**PREFILL, "instances": 3}], "prefill p0 p0 p0 p0 p1 p1"),
    (
        "another order than the scheduler's where that leaves one out",
        A3,
        {(0, None): 6, (1, None): 4},
        [DECODE, {**PREFILL, "instances": 2}, {"name": "more", "npus": 8, "replicas": 3}],
        "decode p0 p0 p0 more p0 p0 p0 prefill p1 p1 p1 p1",
    ),
    ("racks are not crossed", A950, {(0, 0): 2, (0, 1): 2}, [DECODE], None),
    ("racks of one SuperPod", A950, {(0, 0): 3, (1, 0): 3, (1, 1): 2}, [DECODE, PREFILL], "decode p1 p1 p1 prefill p1 p1"),
    (
        "without NPUs anywhere",
        A3,
        {(0, None): 2},
        [PREFILL, {"name": "router", "cpus": 4, "replicas": 2}],
        "prefill p0 p0 router p0 p0",
    ),
]


@pytest.mark.parametrize("story, title, racks, tasks, expected", ROWS, ids=[row[0] for row in ROWS])
def test_instances_of_a_service(story, title, racks, tasks, expected):
    found = place(fleet(title, racks), {"superpod": {}, "tasks": tasks})
    hosts = [task["host"] for task in found["tasks"] if task["npus"]]
    assert len(hosts) == len(set(hosts))
    words = []
    for name in sorted({task["name"] for task in found["tasks"]}):
        words += [name, *(task["host"][:2] for task in found["tasks"] if task["name"] == name)]
    assert (" ".join(words) or None) == expected, found["message"]
    assert found["placed"] == bool(expected)


def test_a_service_that_runs_draws_its_next_instances():
    service = {"id": "llm", "jobs": {"old": {"labels": {"inferserviceid": "llm"}, "hosts": ["p0h0"]}}}
    nodes = fleet(A3, {(0, None): 6, (1, None): 9}, {"p0h0": range(8)})
    found = place(nodes, {"superpod": {"service": service}, "tasks": [PREFILL, DECODE]})
    assert {task["host"][:2] for task in found["tasks"]} == {"p0"}
    assert {task["host"][:2] for task in place(nodes, {"superpod": {}, "tasks": [PREFILL, DECODE]})["tasks"]} == {"p1"}


def test_a_service_without_room_says_which_instance_has_none():
    found = place(fleet(A950, {(0, 0): 2, (0, 1): 2}), {"superpod": {}, "tasks": [DECODE, PREFILL]})
    assert found["message"] == (
        "The job cannot run, because its tasks run together or not at all: 3 tasks decode with 8 NPUs each alongside prefill would find "
        "room for 0 of 3."
    )
    with pytest.raises(Exception, match="superpod: sp_block is not known; known are service, ub_memory, super_pod_size"):
        place(fleet(A3, {(0, None): 2}), {"superpod": {"sp_block": 8}, "tasks": [PREFILL]})
    with pytest.raises(Exception, match=r"tasks\[0\]: instances is not known"):
        place(fleet(A3, {(0, None): 2}), {"tasks": [{**PREFILL, "instances": 2}]})


def fits_somehow(racks, sizes):
    """Return whether instances of so many whole hosts, the halves of hosts last, have a place, by trying everything."""
    if not sizes or sizes[0] < 1:
        return sum(sizes) <= sum(racks)
    return any(
        count >= sizes[0] and fits_somehow([*racks[:place_], count - sizes[0], *racks[place_ + 1 :]], sizes[1:])
        for place_, count in enumerate(racks)
    )


@settings(max_examples=60, deadline=None)
@given(
    title=st.sampled_from([A3, A950]),
    racks=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    shapes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2), st.booleans()), min_size=1, max_size=3),
)
def test_a_service_cannot_run_only_if_an_instance_has_no_place(title, racks, shapes):
    numbers = {((0, number) if title == A950 else (number, None)): count for number, count in enumerate(racks)}
    tasks = [
        {"npus": 4 if half else 8, "replicas": 1 if half else replicas, "instances": instances} for replicas, instances, half in shapes
    ]
    nodes = fleet(title, numbers)
    found = place(nodes, {"superpod": {}, "tasks": tasks})
    sizes = [task["replicas"] * task["npus"] / 8 for task in tasks for _instance in range(task["instances"])]
    assert found["placed"] == fits_somehow(racks, sorted(sizes, reverse=True)), found["message"]
    given_away = [(task["host"], npu) for task in found["tasks"] for npu in task["npus"]]
    assert len(given_away) == len(set(given_away))
    for number, task in enumerate(tasks):
        own = [one["host"].rpartition("h")[0] for one in found["tasks"] if one["name"] == f"task{number}"]
        for rack in set(own):
            assert own.count(rack) % task["replicas"] == 0, "an instance is inside one rack"


ORDER = [
    (("same_rack", 1), ("same_superpod", 10)),
    (("same_rack", 5), ("same_rack", 3)),
    (("same_superpod", 5, 3, 10), ("same_superpod", 8, 1, 20)),
    (("same_superpod", 8, 2, 10), ("same_superpod", 5, 2, 20)),
    (("same_superpod", 5, 2, 20), ("same_superpod", 5, 2, 10)),
    (("same_superpod", 8, 1, 8), ("other_superpod", 8, 1, 8)),
]


@pytest.mark.parametrize("left, right", ORDER)
def test_the_order_of_racks(left, right):
    assert services.order(*left) < services.order(*right)


# Tasks, their NPUs, sp-block, ra-block, hosts of a SuperPod, memory over UnifiedBus, and why there is no such job on an Atlas 950.
SIZES = [
    ((4, 8, 32, 8, 32, False), None),
    ((1, 3, 3, 1, None, False), None),
    ((1, 8, 10, 1, 32, False), "Parameter sp-block(10) is not multiple of node npu (8)"),
    ((5, 8, 32, 1, 32, False), "job require total Pod(5) should be multiple of a sp-block size 4"),
    ((4, 8, 32, 1, 2, False), "Parameter spBlock(32/8=4) is bigger than size of super-pod-size(2)"),
    ((2, 8, 16, 32, 32, False), "Parameter ra-block(32)/8 could not be bigger than sp-block(16)/8"),
    ((6, 8, 24, 16, 32, False), "number of tasks(6) must be multiple of nodes occupied by ra-block(2)"),
    ((3, 6, 1, 1, 32, False), "distributed job require npu 8, instead of 6"),
    ((256, 8, 8, 1, 32, True), "in ubmem scene, task require npu nums should smaller than 1024, but recevice 1032"),
    ((128, 8, 8, 1, 32, True), None),
]


@pytest.mark.parametrize("job, refusal", SIZES)
def test_sizes_of_jobs_on_the_atlas_950(job, refusal):
    assert _racks.refusal(*job) == refusal


def test_memory_over_unifiedbus_stays_in_a_domain_of_16_racks():
    free = {(0, 0): 8, (0, 16): 8, (0, 17): 8, (0, 18): 8, (1, 0): 8, (1, 1): 8, (1, 2): 8, (1, 3): 8, (1, 16): 8}
    assert _racks.take(free, 32, 4, 4, ub_memory=True)[0][0] == 1
    with pytest.raises(ValueError, match="scheduling failed in UBMemSchedule strategy"):
        _racks.take(free, 40, 8, 4, ub_memory=True)
    assert sum(count for _pod, _rack, count in _racks.take(free, 40, 8, 4)) == 40


def test_soft_affinity_takes_any_racks():
    free = {(0, 0): 3, (0, 1): 1, (1, 0): 2}
    assert _racks.take(free, 6, 3, 2, soft=True) == [(0, 0, 3), (0, 1, 1), (1, 0, 2)]


JOBS = st.tuples(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 4), st.sampled_from([1, 2, 4])
)


@settings(max_examples=100, deadline=None)
@given(JOBS)
def test_pieces_of_blocks_stay_in_racks(job):
    pods, blocks, piece = job
    free = {(pod, rack): count for pod, racks in enumerate(pods) for rack, count in enumerate(racks)}
    fits = sum(sum(count // piece for count in racks) * piece // 4 for racks in pods)
    replicas = blocks * 4
    one_rack = replicas <= 8 and any(count >= replicas for count in free.values())
    try:
        taken = _racks.take(free, replicas, 4, piece)
    except ValueError:
        assert fits < blocks and not one_rack
        return
    assert fits >= blocks or one_rack
    assert sum(count for _pod, _rack, count in taken) == replicas
    for rack in free:
        used = [count for pod, number, count in taken if (pod, number) == rack]
        assert sum(used) <= free[rack] and all(count % piece == 0 for count in used)
