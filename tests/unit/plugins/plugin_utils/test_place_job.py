# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs whose tasks differ: placed together or not at all."""

from __future__ import annotations

import copy
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import a2, host

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import job as _job
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.search import search


ROUTER = {"name": "router", "cpus": 8}
EVERY_NODE = {"name": "near", "cpus": 22, "replicas": 5, "policy": "single-numa-node"}
WIDE = {"name": "wide", "npus": 1, "cpus": 80}
JOBS = [
    (
        "two shapes share a host",
        {"h": a2()},
        [{"name": "big", "npus": 4, "cpus": 40}, {"name": "small", "npus": 2, "cpus": 8, "replicas": 2}],
        [("big", "h", [0, 1, 2, 3]), ("small", "h", [4, 5]), ("small", "h", [6, 7])],
    ),
    (
        "the largest is placed first, and told in the order given",
        {"h": a2(), "i": a2(busy=(0,))},
        [ROUTER, {"name": "half", "npus": 4, "cpus": 1}, {"name": "whole", "npus": 8, "cpus": 1}],
        [("router", "h", []), ("half", "i", [1, 2, 3, 4]), ("whole", "h", [0, 1, 2, 3, 4, 5, 6, 7])],
    ),
    ("where that leaves one out, the order given", {"h": a2()}, [EVERY_NODE, WIDE], [*[("near", "h", [])] * 5, ("wide", "h", [0])]),
    ("and where that does, too, any other order", {"h": a2()}, [WIDE, EVERY_NODE], [("wide", "h", [0]), *[("near", "h", [])] * 5]),
    (
        "a fleet without one NPU to spare",
        {"a": a2(), "b": a2(busy=(0, 1)), "c": a2(), "d": a2(busy=range(8))},
        [
            {"name": "five", "npus": 5, "replicas": 2},
            {"name": "two", "npus": 2, "replicas": 3},
            {"name": "three", "npus": 3, "replicas": 2},
        ],
        [
            ("five", "a", [0, 1, 2, 3, 4]),
            ("five", "c", [0, 1, 2, 3, 4]),
            ("two", "b", [2, 3]),
            ("two", "b", [4, 5]),
            ("two", "b", [6, 7]),
            ("three", "a", [5, 6, 7]),
            ("three", "c", [5, 6, 7]),
        ],
    ),
]


@pytest.mark.parametrize("hosts, tasks, expected", [row[1:] for row in JOBS], ids=[row[0] for row in JOBS])
def test_tasks_of_several_shapes(hosts, tasks, expected):
    found = place(hosts, {"tasks": tasks})
    assert [(task["name"], task["host"], task["npus"]) for task in found["tasks"]] == expected, found["table"]
    assert found["placed"] == bool(expected)
    assert [task["task"] for task in found["tasks"]] == list(range(len(expected)))


@pytest.mark.parametrize(
    "tasks, message",
    [
        (
            [{"name": "prefill", "npus": 4, "replicas": 2}, {"name": "decode", "npus": 2, "replicas": 3}],
            "The job cannot run, because its tasks run together or not at all: 3 tasks decode with 2 NPUs each alongside prefill would "
            "find room for 2 of 3.",
        ),
        (
            [{"npus": 4, "replicas": 4}, ROUTER],
            "The job cannot run, because its tasks run together or not at all: 4 tasks task0 with 4 NPUs each alongside router would find "
            "room for 3 of 4.",
        ),
        (
            [{"name": "huge", "cpus": 500}, ROUTER],
            "The job cannot run: no host can take a task huge with 500 CPUs, with its reason in refused.",
        ),
    ],
)
def test_all_or_nothing(tasks, message):
    found = place({"one": a2(), "two": a2(busy=(0, 1, 2, 3))}, {"tasks": tasks})
    assert (found["placed"], found["tasks"], found["message"]) == (False, [], message)
    assert found["table"][0] == message


FREE = st.lists(st.integers(0, 8), min_size=1, max_size=4)
SIZES = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3)), min_size=1, max_size=3)


def fits_somehow(free, tasks):
    """Return whether tasks of these sizes fit bins with so much room, by trying everything."""
    if not tasks:
        return True
    return any(
        room >= tasks[0] and fits_somehow([*free[:bin], room - tasks[0], *free[bin + 1 :]], tasks[1:]) for bin, room in enumerate(free)
    )


@settings(max_examples=70, deadline=None)
@given(free=FREE, sizes=SIZES)
def test_a_job_cannot_run_only_if_no_host_is_left_for_a_task(free, sizes):
    hosts = {f"h{number}": a2(busy=range(8 - room)) for number, room in enumerate(free)}
    found = place(hosts, {"tasks": [{"npus": npus, "replicas": replicas} for npus, replicas in sizes]})
    tasks = [npus for npus, replicas in sizes for _task in range(replicas)]
    assert found["placed"] == fits_somehow(free, tasks), found["message"]
    assert found["message"].startswith("The job can run: " if found["placed"] else "The job cannot run")


NUMA_SHAPE = st.fixed_dictionaries(
    {"npus": st.sampled_from([0, 1, 2, 4]), "cpus": st.sampled_from([4, 10, 20, 24, 30]), "replicas": st.integers(1, 2)},
    optional={"policy": st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])},
)


def runs_somehow(hosts, requests):
    """Return whether one task after the other finds room in some order on some hosts, by trying everything."""
    if not requests:
        return True
    for place_, request in enumerate(requests):
        if request in requests[:place_]:
            continue
        for name in hosts:
            after = copy.deepcopy(hosts[name])
            try:
                _place.put(after, _place.Ranking(request, {}))
            except ValueError:
                continue
            if runs_somehow({**hosts, name: after}, [*requests[:place_], *requests[place_ + 1 :]]):
                return True
    return False


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(NUMA_SHAPE, min_size=1, max_size=2), busy=st.lists(st.sets(st.integers(0, 3), max_size=3), min_size=1, max_size=2))
def test_no_order_of_tasks_runs_that_the_search_does_not_find(shapes, busy):
    hosts = {}
    for number, taken in enumerate(busy):
        hosts[f"h{number}"] = host([0, 0, 1, 1], nodes=2, cores=24)
        for npu in hosts[f"h{number}"]["npus"]:
            npu["busy"] = npu["id"] in taken
    found = place(hosts, {"tasks": shapes})
    known, _unreadable = _place.read_all(hosts)
    requests = [shape.request for shape in _job._shapes({"tasks": shapes}) for _task in range(shape.request.replicas)]
    assert found["placed"] == runs_somehow(known, requests), found["message"]


def test_a_search_that_is_given_up_proves_nothing(monkeypatch):
    monkeypatch.setattr(_job, "search", partial(search, limit=20))
    tasks = [{"npus": 5, "replicas": 2}, {"npus": 2, "replicas": 3}, {"npus": 3, "replicas": 2}]
    found = place({"a": a2(), "b": a2(busy=(0, 1)), "c": a2()}, {"tasks": tasks})
    assert (found["placed"], found["tasks"]) == (False, [])
    assert found["message"] == (
        "No placement of the job was found within the limit of 100000 steps; it may have one. Tried first, 3 tasks task1 with 2 NPUs each "
        "found room for 2 of 3. Ask for fewer tasks or shapes, or name fewer hosts."
    )


def test_the_summary_names_host_and_npus_of_every_task():
    found = place(
        {"one": a2(), "two": a2(busy=(0, 1, 2, 3))}, {"tasks": [{"name": "decode", "npus": 4, "cpus": 10, "replicas": 2}, ROUTER]}
    )
    assert found["message"] == "The job can run: 2 tasks decode with 4 NPUs and 10 CPUs each on two, one; a task router with 8 CPUs on one."
    start = found["table"].index("task  name    host  NPUs  CPUs     NUMA")
    assert [line.split()[:4] for line in found["table"][start + 1 : start + 4]] == [
        ["0", "decode", "two", "4-7"],
        ["1", "decode", "one", "0-3"],
        ["2", "router", "one", "-"],
    ]
    assert found["fitting"] == {"decode": 2, "router": 2}
    assert {(entry["name"], entry["host"]) for entry in found["hosts"]} == {(n, h) for n in ("decode", "router") for h in ("one", "two")}
    assert found["request"]["tasks"][1] == {
        "name": "router", "cpus": 8, "npus": 0, "replicas": 1, "policy": "none", "family": "auto", "mode": None,
    }  # fmt: skip


def test_tasks_have_a_policy_and_a_product_of_their_own():
    hosts = {"a2": a2(), "a3": host([0, 0, 1, 1] * 4, nodes=2, family="a3")}
    tasks = [{"name": "decode", "npus": 2, "family": "a3"}, {"name": "prefill", "npus": 2, "cpus": 4, "policy": "single-numa-node"}]
    found = place(hosts, {"family": "a2", "tasks": tasks})
    assert [(task["name"], task["host"]) for task in found["tasks"]] == [("decode", "a3"), ("prefill", "a2")]
    assert found["tasks"][1]["numa"] == [6]


@pytest.mark.parametrize(
    "request_, words",
    [
        ({"tasks": []}, "tasks: expected a list of {npus, cpus, replicas}; got []"),
        ({"tasks": "two"}, "tasks: expected a list"),
        ({"tasks": [ROUTER], "npus": 2}, "tasks: npus next to tasks is ambiguous: set it in each of tasks"),
        ({"tasks": [ROUTER], "switch": {}}, "tasks: switch is for jobs whose tasks are all alike"),
        ({"tasks": [ROUTER, ROUTER]}, "tasks: router is the name of several"),
        ({"tasks": [ROUTER, {"npus": 0}]}, "tasks[1]: cpus and npus: a task needs at least one CPU or one NPU"),
        ({"tasks": [{"gpus": 1}]}, "tasks[0]: gpus is not known; known are"),
        ({"tasks": [{"cpus": 1, "limit": 3}]}, "tasks[0]: limit is not known"),
        ({"tasks": [7]}, "tasks[0]: expected a dictionary"),
        ({"tasks": [ROUTER], "gang": True}, "request: gang is not known"),
    ],
)
def test_jobs_that_make_no_sense(request_, words):
    with pytest.raises(Exception, match=".") as refused:
        place({"h": a2()}, request_)
    assert words in str(refused.value)


SHAPE = st.fixed_dictionaries(
    {"npus": st.sampled_from([0, 0, 1, 2, 4, 8]), "cpus": st.integers(1, 70), "replicas": st.integers(1, 3)},
    optional={"policy": st.sampled_from(["none", "best-effort", "single-numa-node"])},
)


@settings(max_examples=50, deadline=None)
@given(
    tasks=st.lists(SHAPE, min_size=1, max_size=4),
    busy=st.lists(st.sets(st.integers(0, 7), max_size=8), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_jobs_are_placed_whole_or_not_at_all_without_sharing(tasks, busy, order):
    hosts = {f"h{number}": a2(taken) for number, taken in enumerate(busy)}
    before = copy.deepcopy(hosts)
    found = place(hosts, {"tasks": tasks})
    assert hosts == before
    shuffled = order.sample(list(hosts.items()), len(hosts))
    assert place(dict(shuffled), {"tasks": tasks}) == found
    assert found["placed"] == bool(found["tasks"])
    if found["placed"]:
        wanted = [(f"task{number}", task["npus"], task["cpus"]) for number, task in enumerate(tasks) for _copy in range(task["replicas"])]
        assert [(task["name"], len(task["npus"]), len(expand(task["cpus"]))) for task in found["tasks"]] == wanted
    for name, taken in zip(hosts, busy, strict=True):
        mine = [task for task in found["tasks"] if task["host"] == name]
        for given_away in ([npu for task in mine for npu in task["npus"]], [cpu for task in mine for cpu in expand(task["cpus"])]):
            assert len(given_away) == len(set(given_away))
        assert not {npu for task in mine for npu in task["npus"]} & taken


@settings(max_examples=14, deadline=None)
@given(task=SHAPE, busy=st.sets(st.integers(0, 7), max_size=6))
def test_one_shape_has_the_place_of_a_plain_request(task, busy):
    hosts = {"one": a2(busy), "two": a2()}
    found, plain = place(hosts, {"tasks": [task]}), _place.place(hosts, task)
    assert [{key: value for key, value in entry.items() if key != "name"} for entry in found["tasks"]] == plain["tasks"]
    assert found["fitting"] == {"task0": plain["fitting"]}
