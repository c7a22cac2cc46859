# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs whose tasks differ, and instances of inference services in SuperPods and racks: placed together or not at all."""

import copy
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import a2, host, in_pod

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import job as _job
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.search import search

A3, A950 = "Atlas 9000 A3 SuperPoD", "Atlas 950 SuperPoD"


def fleet(title, busy=None, **hosts):
    """Return hosts with 8 NPUs, so many of each SuperPod ``p0`` or rack ``p0r1``; all NPUs of some are busy."""
    made = {}
    for place_, count in hosts.items():
        pod, _r, rack = place_[1:].partition("r")
        labels = {"superpod": int(pod), **({"rack": int(rack)} if rack else {})}
        for name in (f"{place_}h{number}" for number in range(count)):
            made[name] = in_pod(title, "a5" if title == A950 else "a3", busy=range(8) if name == busy else (), **labels)
    return made


def task(name, npus=0, replicas=1, **more):
    return {"name": name, "npus": npus, "replicas": replicas, **more}


H, PAIR = {"h": a2()}, {"one": a2(), "two": a2(busy=(0, 1, 2, 3))}
EMPTY = {"a": a2(), "b": a2()}
TIGHT = {"a": a2(), "b": a2(busy=(0, 1)), "c": a2(), "d": a2(busy=range(8))}
ROUTER, ROUTERS = task("router", cpus=8), task("router", cpus=4, replicas=2)
HALF, WHOLE, FOURS = task("half", 4, cpus=1), task("whole", 8, cpus=1), {"npus": 4, "replicas": 4}
EVERY_NODE, WIDE = task("near", cpus=22, replicas=5, policy="single-numa-node"), task("wide", 1, cpus=80)
FIVES = [task("five", 5, 2), task("two", 2, 3), task("three", 3, 2)]
PREFILL, DECODE, MORE = task("prefill", 8, 2), task("decode", 8, 3), task("more", 8, 3)
TWICE, SPLIT = {**PREFILL, "instances": 2}, [task("prefill", 4, 2), task("decode", 2, 3)]
SERVED = {"service": {"id": "llm", "jobs": {"old": {"labels": {"inferserviceid": "llm"}, "hosts": ["p0h0"]}}}}
OUTSIDE = {name: in_pod(A3, "a3") for name in ("x", "y")}
FIVE_RACKS = fleet(A950, p0r0=3, p1r0=3, p1r1=2)
TOGETHER = "The job cannot run, because its tasks run together or not at all: "
NO_HOST = "The job cannot run: no host can take a task huge with 500 CPUs, with its reason in refused."
CROSSED = f"{TOGETHER}3 tasks decode with 8 NPUs each alongside prefill would find room for 0 of 3."
OTHER_ORDER = "decode p0h0 p0h1 p0h2; prefill p1h0 p1h1 p1h2 p1h3; more p0h3 p0h4 p0h5"
NO_SERVICE = f"{TOGETHER}2 tasks prefill with 8 NPUs each would find room for 0 of 2."
# Hosts, instances of which service or None for a job, tasks, and where they run or why they do not.
JOBS = [
    ("two shapes share a host", H, None, [task("big", 4, cpus=40), task("small", 2, 2, cpus=8)], "big h:0-3; small h:4-5 h:6-7"),
    ("the largest first", {"h": a2(), "i": a2(busy=(0,))}, None, [ROUTER, HALF, WHOLE], "router h:; half i:1-4; whole h:0-7"),
    ("where that leaves one out, the order given", H, None, [EVERY_NODE, WIDE], "near h: h: h: h: h:; wide h:0"),
    ("and where that does, too, any other order", H, None, [WIDE, EVERY_NODE], "wide h:0; near h: h: h: h: h:"),
    ("no NPU to spare", TIGHT, None, FIVES, "five a:0-4 c:0-4; two b:2-3 b:4-5 b:6-7; three a:5-7 c:5-7"),
    ("no room", PAIR, None, SPLIT, TOGETHER + "3 tasks decode with 2 NPUs each alongside prefill would find room for 2 of 3."),
    ("no division of hosts", EMPTY, None, FIVES[:2], TOGETHER + "3 tasks two with 2 NPUs each alongside five would find room for 2 of 3."),
    ("no name", PAIR, None, [FOURS, ROUTER], TOGETHER + "4 tasks task0 with 4 NPUs each alongside router would find room for 3 of 4."),
    ("no host", PAIR, None, [task("huge", cpus=500), ROUTER], NO_HOST),
    ("one SuperPod that holds all", fleet(A3, p0=4, p1=5), {}, [PREFILL, DECODE], "prefill p1h0 p1h1; decode p1h2 p1h3 p1h4"),
    ("another where the first is full", fleet(A3, p0=2, p1=4), {}, [PREFILL, DECODE], "prefill p0h0 p0h1; decode p1h0 p1h1 p1h2"),
    ("several instances", fleet(A3, p0=4, p1=3), {}, [{**TWICE, "instances": 3}], "prefill p0h0 p0h1 p0h2 p0h3 p1h0 p1h1"),
    ("another order than the scheduler's where that leaves one out", fleet(A3, p0=6, p1=4), {}, [DECODE, TWICE, MORE], OTHER_ORDER),
    ("racks are not crossed", fleet(A950, p0r0=2, p0r1=2), {}, [DECODE, PREFILL], CROSSED),
    ("racks of one SuperPod", FIVE_RACKS, {}, [DECODE, PREFILL], "decode p1r0h0 p1r0h1 p1r0h2; prefill p1r1h0 p1r1h1"),
    ("tasks without NPUs run anywhere", fleet(A3, p0=2), {}, [PREFILL, ROUTERS], "prefill p0h0 p0h1; router p0h0: p0h0:"),
    ("next to the service", fleet(A3, "p0h0", p0=6, p1=9), SERVED, [PREFILL, DECODE], "prefill p0h1 p0h2; decode p0h3 p0h4 p0h5"),
    ("a new service", fleet(A3, "p0h0", p0=6, p1=9), {}, [PREFILL, DECODE], "prefill p1h0 p1h1; decode p1h2 p1h3 p1h4"),
    ("hosts outside of SuperPods have no instance", {**fleet(A3, p0=1), **OUTSIDE}, {}, [PREFILL], NO_SERVICE),
]


def shown(tasks):
    by_name = {}
    for number, one in enumerate(tasks):
        assert one["task"] == number
        npus = "" if one["host"][0] == "p" and len(one["npus"]) == 8 else f":{compress(one['npus'])}"
        by_name.setdefault(one["name"], []).append(one["host"] + npus)
    return "; ".join(f"{name} {' '.join(hosts)}" for name, hosts in by_name.items())


@pytest.mark.parametrize("hosts, service, tasks, expected", [row[1:] for row in JOBS], ids=[row[0] for row in JOBS])
def test_tasks_of_several_shapes_run_together_or_not_at_all(hosts, service, tasks, expected):
    found = place(hosts, {"superpod": service, "tasks": tasks})
    assert shown(found["tasks"]) == (expected if found["placed"] else "")
    assert found["placed"] or found["message"] == found["table"][0] == expected


FREE = st.lists(st.integers(0, 8), min_size=1, max_size=4)
SIZES = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3)), min_size=1, max_size=3)


def fits_somehow(free, tasks):
    """Return whether tasks of these sizes fit bins with so much room, by trying everything; halves of hosts fit the rest."""
    if not tasks or tasks[0] < 1:
        return sum(tasks) <= sum(free)
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


INSTANCES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2), st.booleans()), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(title=st.sampled_from([A3, A950]), racks=st.lists(st.integers(0, 5), min_size=1, max_size=4), shapes=INSTANCES)
def test_a_service_cannot_run_only_if_an_instance_has_no_place(title, racks, shapes):
    hosts = fleet(title, **{f"p0r{number}" if title == A950 else f"p{number}": count for number, count in enumerate(racks)})
    tasks = [task(str(number), *((4, 1) if half else (8, whole)), instances=n) for number, (whole, n, half) in enumerate(shapes)]
    found = place(hosts, {"superpod": {}, "tasks": tasks})
    sizes = [shape["replicas"] * shape["npus"] / 8 for shape in tasks for _instance in range(shape["instances"])]
    assert found["placed"] == fits_somehow(racks, sorted(sizes, reverse=True)), found["message"]
    given_away = [(one["host"], npu) for one in found["tasks"] for npu in one["npus"]]
    assert len(given_away) == len(set(given_away))
    for shape in tasks:
        own = [one["host"].rpartition("h")[0] for one in found["tasks"] if one["name"] == shape["name"]]
        assert all(own.count(rack) % shape["replicas"] == 0 for rack in own), "an instance is inside one rack"


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
                _place.put(_place.fit(after, request), _place.Ranking(request, {}))
            except ValueError:
                continue
            if runs_somehow({**hosts, name: after}, [*requests[:place_], *requests[place_ + 1 :]]):
                return True
    return False


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(NUMA_SHAPE, min_size=1, max_size=2), busy=st.lists(st.sets(st.integers(0, 3), max_size=3), min_size=1, max_size=2))
def test_no_order_of_tasks_runs_that_the_search_does_not_find(shapes, busy):
    hosts = {f"h{number}": host([0, 0, 1, 1], nodes=2, cores=24) for number in range(len(busy))}
    for topology, taken in zip(hosts.values(), busy, strict=True):
        topology["npus"] = [{**npu, "busy": npu["id"] in taken} for npu in topology["npus"]]
    found = place(hosts, {"tasks": shapes})
    known, _unreadable = _place.read_all(hosts)
    requests = [shape.request for shape in _job._shapes({"tasks": shapes}) for _task in range(shape.request.replicas)]
    assert found["placed"] == runs_somehow(known, requests), found["message"]


def test_a_search_that_is_given_up_proves_nothing(monkeypatch):
    monkeypatch.setattr(_job, "search", partial(search, limit=20))
    found = place(TIGHT, {"tasks": FIVES})
    assert (found["placed"], found["tasks"]) == (False, [])
    assert found["message"] == (
        "No placement of the job was found within the limit of 100000 steps; it may have one. Tried first, 3 tasks two with 2 NPUs each "
        "found room for 2 of 3. Ask for fewer tasks or shapes, or name fewer hosts."
    )


TABLE = """\
The job can run: 2 tasks decode with 4 NPUs and 10 CPUs each on two, one; a task router with 8 CPUs on one.

task  name    host  NPUs  CPUs     NUMA
0     decode  two   4-7   0-9      0
1     decode  one   0-3   96-105   4
2     router  one   -     106-113  4

decode, alone: a task with 4 NPUs and 10 CPUs"""


def test_the_summary_names_host_and_npus_of_every_task():
    found = place(PAIR, {"tasks": [task("decode", 4, 2, cpus=10), ROUTER]})
    assert "\n".join(found["table"][:8]) == TABLE
    assert "router, alone: a task with 8 CPUs" in found["table"]
    assert found["fitting"] == {"decode": 2, "router": 2}
    assert [entry["name"] + " " + entry["host"] for entry in found["hosts"]] == ["decode two", "decode one", "router one", "router two"]
    assert found["request"]["tasks"][1] == {**ROUTER, "policy": "none", "family": "auto", "mode": None}


def test_tasks_have_a_policy_and_a_product_of_their_own():
    hosts = {"a2": a2(), "a3": host([0, 0, 1, 1] * 4, nodes=2, family="a3")}
    tasks = [task("decode", 2, family="a3"), task("prefill", 2, cpus=4, policy="single-numa-node")]
    found = place(hosts, {"family": "a2", "tasks": tasks})
    assert shown(found["tasks"]) == "decode a3:0-1; prefill a2:0-1" and found["tasks"][1]["numa"] == [6]


BAD = [
    ({"tasks": []}, "tasks: expected a list of {npus, cpus, replicas}; got []"),
    ({"tasks": "two"}, "tasks: expected a list"),
    ({"tasks": [ROUTER], "npus": 2}, "tasks: npus next to tasks is ambiguous: set it in each of tasks"),
    ({"tasks": [ROUTER], "switch": {}}, "tasks: switch requires that all tasks are alike"),
    ({"tasks": [ROUTER, ROUTER]}, "tasks: router is the name of several tasks"),
    ({"tasks": [ROUTER, {"npus": 0}]}, "tasks[1]: cpus and npus: a task needs at least one CPU or one NPU"),
    ({"tasks": [{"gpus": 1}]}, "tasks[0]: gpus is not known; known are"),
    ({"tasks": [{"cpus": 1, "limit": 3}]}, "tasks[0]: limit is not known"),
    ({"tasks": [7]}, "tasks[0]: expected a dictionary"),
    ({"tasks": [ROUTER], "gang": True}, "request: gang is not known"),
    ({"tasks": [{**PREFILL, "instances": 2}]}, "tasks[0]: instances is not known"),
    ({"tasks": [{**PREFILL, "instances": 0}], "superpod": {}}, "tasks[0]: instances: expected a whole number of 1 or more; got 0"),
    ({"tasks": [PREFILL], "superpod": {"sp_block": 8}}, "superpod: sp_block is not known; known are service, ub_memory, super_pod_size"),
]


@pytest.mark.parametrize("request_, words", BAD)
def test_jobs_that_make_no_sense(request_, words):
    with pytest.raises(Exception, match=".") as refused:
        place(H, request_)
    assert words in str(refused.value)


SHAPE = st.fixed_dictionaries(
    {"npus": st.sampled_from([0, 0, 1, 2, 4, 8]), "cpus": st.integers(1, 70), "replicas": st.integers(1, 3)},
    optional={"policy": st.sampled_from(["none", "best-effort", "single-numa-node"])},
)
BUSY = st.lists(st.sets(st.integers(0, 7), max_size=8), min_size=1, max_size=3)


@settings(max_examples=50, deadline=None)
@given(tasks=st.lists(SHAPE, min_size=1, max_size=4), busy=BUSY, order=st.randoms(use_true_random=False))
def test_jobs_are_placed_whole_or_not_at_all_without_sharing(tasks, busy, order):
    hosts = {f"h{number}": a2(taken) for number, taken in enumerate(busy)}
    before = copy.deepcopy(hosts)
    found = place(hosts, {"tasks": tasks})
    assert hosts == before
    assert place(dict(order.sample(list(hosts.items()), len(hosts))), {"tasks": tasks}) == found
    assert found["placed"] == bool(found["tasks"])
    plain = _place.place(hosts, tasks[0])["tasks"]
    assert len(tasks) > 1 or found["tasks"] == [{"name": "task0", **entry} for entry in plain]
    if found["placed"]:
        wanted = [(f"task{number}", one["npus"], one["cpus"]) for number, one in enumerate(tasks) for _copy in range(one["replicas"])]
        assert [(one["name"], len(one["npus"]), len(expand(one["cpus"]))) for one in found["tasks"]] == wanted
    for name, taken in zip(hosts, busy, strict=True):
        mine = [one for one in found["tasks"] if one["host"] == name]
        npus, cpus = [npu for one in mine for npu in one["npus"]], [cpu for one in mine for cpu in expand(one["cpus"])]
        assert len(npus) == len(set(npus) - taken) and len(cpus) == len(set(cpus))
