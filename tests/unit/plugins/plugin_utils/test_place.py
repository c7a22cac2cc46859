# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where jobs can run in a fleet: the examples of the documents, and what hosts with and without kubelets and plans give."""

import copy

import pytest
from planner_hosts import a2, host, in_pod, returns

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.place import numa_score, place
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

BEST, RESTRICTED, SINGLE = "best-effort", "restricted", "single-numa-node"


def numbers(policy, free, capacity=16, **more):
    """Return a host of which only numbers are known, with two NUMA nodes."""
    return {"policy": policy, "capacity": {"0": capacity, "1": capacity}, "free": {"0": free[0], "1": free[1]}, **more}


def reasons(found):
    return {entry["host"]: entry["reason"] for entry in found["refused"]}


CCE = {
    "node-1": numbers(BEST, (7, 7)),
    "node-2": numbers(RESTRICTED, (7, 7)),
    "node-3": numbers(RESTRICTED, (7, 10)),
    "node-4": numbers(SINGLE, (7, 10)),
}
SECOND = {"node-1": numbers(SINGLE, (16, 16)), "node-2": numbers(BEST, (16, 16)), "node-3": numbers(BEST, (20, 20), 20)}
# The examples of the page "NUMA Affinity Scheduling" of Huawei Cloud CCE: hosts, the request, and nodes and score of those that fit.
RANKED = [
    (CCE, {"cpus": 9, "policy": BEST}, {"node-1": ([0, 1], 0)}),
    (CCE, {"cpus": 11, "policy": RESTRICTED}, {}),
    (CCE, {"cpus": 17, "policy": RESTRICTED}, {"node-3": ([0, 1], 0)}),
    (CCE, {"cpus": 17, "policy": SINGLE}, {}),
    (SECOND, {"cpus": 2, "policy": SINGLE}, {"node-1": ([0], 0)}),
    (SECOND, {"cpus": 20, "policy": BEST}, {"node-3": ([0], 500), "node-2": ([0, 1], 0)}),
]


@pytest.mark.parametrize("hosts, request_, expected", RANKED)
def test_the_examples_of_cce(hosts, request_, expected):
    found = place(hosts, {"weight": 10, **request_})
    assert [(entry["host"], (entry["numa"], entry["score"])) for entry in found["hosts"]] == [*expected.items()]
    assert found["placed"] == bool(expected)
    assert len(found["refused"]) == len(hosts) - len(expected)


def test_the_scores_of_cce():
    assert [numa_score(used, 4, 10) for used in (1, 2, 4)] == [750, 500, 0]
    assert [numa_score(0, 0, weight) for weight in (1, 10)] == [100, 1000]


def kubelet(policy, shared="0-191", **more):
    return {"policy": "static", "topology_policy": policy, "default_cpus": shared, "exclusive": {}, "warnings": [], **more}


def duo():
    topology = host([0, 0, 0, 0, 2, 2, 2, 2], nodes=4, cores=32, family="310p")
    for npu in topology["npus"]:
        npu.update(card=npu["id"] // 2, chip=npu["id"] % 2, pci=f"0000:0{npu['id'] // 2}:00.0")
    return topology


def without_card(topology, lost):
    """Return a host of which a card is off the bus: the others have closed up in their ids."""
    return {**topology, "npus": [{**npu, "id": number} for number, npu in enumerate(npu for npu in topology["npus"] if npu["id"] != lost)]}


SHARED = a2(kubelet=kubelet(RESTRICTED, "0-7,144-190", reserved_cpus="0-1,144-147"))
SMT = {**host([0, 1], nodes=2, cores=4, threads=2), "kubelet": kubelet(RESTRICTED, "0-15", options={"full-pcpus-only": "true"})}
BOUND = {**a2(busy=(4,)), "applied": plan(a2())}
KEPT = {**a2(), "applied": plan(a2(), housekeeping=1)}
NOWHERE = {**a2(), "npus": [{**npu, "numa": None} for npu in a2()["npus"]]}
RING = host([0, 2], nodes=4, cores=4, nodes_per_socket=4)
for node in RING["numa"]:
    node["distances"] = {str(other): 11 if {node["id"], other} == {0, 3} else 20 for other in range(4)}
CLOSE = {**RING, "kubelet": kubelet(BEST, "0-15", topology_options={"prefer-closest-numa-nodes": "true"})}
# A host, the request, and NPUs, CPUs and NUMA nodes of its tasks.
TASKS = [
    ("chips, CPUs and NUMA nodes belong together", a2(busy=(0, 1)), {"npus": 2, "cpus": 20, "policy": SINGLE}, "2-3 96-115 4"),
    ("texts for switches", a2(), {"npus": "1", "cpus": "20", "policy": BEST, "kubernetes": "false"}, "0 144-163 6"),
    ("CPUs near the NPUs without a policy", a2(), {"npus": 1, "cpus": 20}, "0 144-163 6"),
    ("a kubelet without topology policy takes the first", a2(kubelet=kubelet("none")), {"npus": 1, "cpus": 20}, "0 0-19 0"),
    ("one with a policy looks at the NPUs", a2(kubelet=kubelet(BEST)), {"npus": 1, "cpus": 20}, "0 144-163 6"),
    ("one that gives out no CPUs", a2(kubelet={**kubelet("none"), "policy": "none"}), {"npus": 1, "cpus": 20}, "0 144-163 6"),
    ("shared CPUs minus reserved ones", SHARED, {"npus": 1, "cpus": 20, "policy": RESTRICTED}, "0 148-167 6"),
    ("a CPU and a half are two cores", a2(kubelet=kubelet("none", reserved_millicpus=1500)), {"cpus": 190}, "- 2-191 0,1,2,3,4,5,6,7"),
    ("the closest of two nodes", CLOSE, {"cpus": 8, "policy": BEST}, "- 0-3,12-15 0,3"),
    ("pools of idle NPUs", BOUND, {"npus": 2}, "0-1 144-191 6,7"),
    ("a part of a pool", BOUND, {"npus": 1, "cpus": 8, "policy": BEST}, "0 144-151 6"),
    ("as large as a pool", BOUND, {"npus": 1, "cpus": 24}, "0 144-167 6"),
    ("larger than a pool", BOUND, {"npus": 1, "cpus": 25}, "0 24,144-167 1,6"),
    ("a busy NPU keeps its pool", BOUND, {"cpus": 168}, "- 24-191 1,2,3,4,5,6,7"),
    ("also where ids have closed up", without_card(BOUND, 0), {"cpus": 168}, "- 24-191 1,2,3,4,5,6,7"),
    ("what the plan keeps for the system", KEPT, {"cpus": 184}, "- 1-23,25-47,49-71,73-95,97-119,121-143,145-167,169-191 0,1,2,3,4,5,6,7"),
    ("all free CPUs", a2(), {"cpus": 192.0}, "- 0-191 0,1,2,3,4,5,6,7"),
    ("no node of the NPUs is known", NOWHERE, {"npus": 1}, "0  "),
    ("and a policy without hint admits all", NOWHERE, {"npus": 1, "policy": BEST}, "0  0,1,2,3,4,5,6,7"),
    ("numbers alone", numbers(BEST, (7, 10)), {"cpus": 8, "replicas": 2, "policy": BEST}, "- ? 1; - ? 0,1"),
    ("one after the other", a2(busy=(1, 4)), {"npus": 3, "cpus": 40, "replicas": 2}, "0,2-3 96-119,144-159 4,6; 5-7 0-23,48-63 0,2"),
    ("cards", duo(), {"npus": 2, "mode": "card", "replicas": 2}, "0-1  0; 2-3  0"),
]


@pytest.mark.parametrize("node, request_, expected", [row[1:] for row in TASKS], ids=[row[0] for row in TASKS])
def test_what_tasks_get_on_a_host(node, request_, expected):
    shown = []
    for task in place({"h": node}, request_)["tasks"]:
        cpus = "?" if task["cpus"] is None else task["cpus"]
        shown.append(f"{compress(task['npus']) or '-'} {cpus} {','.join(map(str, task['numa']))}")
    assert "; ".join(shown) == expected


def a3(title="Atlas 9000 A3 SuperPoD", **more):
    return in_pod(title, "a3", **more)


def a5(title="Atlas 950 SuperPoD", name="Ascend950DT", **more):
    return in_pod(title, "a5", name, **more)


FAR = a2(busy=(0, 2))
WHEN_EMPTY = "CPUs fit one NUMA node when the host is empty, but free are"
CAN_BE = "a host with 8 chips of the family a5 can be"
NO_FACTS = "expected the fact npu_affinity_topology, or policy, capacity and free (CPUs by NUMA node); got "
NO_POOL = {**KEPT, "applied": {"npus": [{**entry, "pool": "x"} for entry in KEPT["applied"]["npus"]]}}
BROKEN = {"cpus": {"online": "0-x"}, "npus": []}
# The host, CPUs and policy of the request, what else it asks for, and the reason.
REASONS = [
    (CCE["node-1"], 11, RESTRICTED, {}, "task topology policy[restricted] is different with node[best-effort]"),
    (CCE["node-3"], 11, RESTRICTED, {}, f"restricted: 11 {WHEN_EMPTY} 7 on NUMA node 0, 10 on NUMA node 1"),
    (CCE["node-4"], 17, SINGLE, {}, "single-numa-node: no NUMA node of the host has 17 CPUs, even when it is empty"),
    (CCE["node-4"], 18, SINGLE, {}, "18 CPUs are wanted, and 17 are free: 7 on NUMA node 0, 10 on NUMA node 1"),
    (numbers(BEST, (9, 9), cpu_policy="none"), 2, BEST, {}, "cpu manager policy isn't static: the kubelet's is none"),
    (numbers(BEST, (0, 0)), 2, BEST, {}, "cpu allocatable map is empty: all CPUs are reserved or given to containers"),
    ({**numbers(BEST, (7, 7)), "free": {"0": 7}}, 9, "none", {}, "9 CPUs are wanted, and 7 are free: 7 on NUMA node 0, 0 on NUMA node 1"),
    (host([0, 1], nodes=2), 2, BEST, {"kubernetes": True}, "numa info is empty: there are no kubelet files on the host"),
    (SHARED, 24, RESTRICTED, {}, f"restricted: 24 {WHEN_EMPTY} 6 on NUMA node 0, "),
    (SHARED, 44, RESTRICTED, {}, "restricted: 44 CPUs fit 2 NUMA nodes when the host is empty, but free are 6"),
    (SMT, 3, RESTRICTED, {}, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (SMT, 3, "none", {}, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (a2(), 193, "none", {}, "193 CPUs are wanted, and 192 are free: 24 on NUMA node 0, "),
    (a2(), 30, RESTRICTED, {"npus": 2}, "restricted: NPUs 0-1 are on NUMA node 6, and 30 CPUs do not fit exactly there: free are 24 on"),
    (a2(), 30, SINGLE, {"npus": 1}, "single-numa-node: no NUMA node of the host has 30 CPUs, even when it is empty"),
    (a2(), 0, SINGLE, {"npus": 3}, "single-numa-node: NPUs 0-2 are on NUMA nodes 4, 6"),
    (FAR, 20, SINGLE, {"npus": 2}, "single-numa-node: NPUs 1, 3 are on NUMA nodes 4, 6, and fewer nodes could hold 2"),
    (a2(), 0, "none", {"npus": 2, "mode": "distributed"}, "mode distributed hands out inference cards, and its product is Atlas 800"),
    (a2(), 0, "none", {"npus": 2, "family": "a3"}, "its product is Atlas 800T A2 or Atlas 900 A2 unit (a2), and a3 is wanted"),
    (a5("X", "Ascend950PR", product="a3"), 0, "none", {"npus": 4}, f"npu_affinity_labels.product is 'a3'; {CAN_BE} atlas350_8, "),
    (numbers("none", (8, 8)), 1, "none", {"npus": 1}, "the host is described by CPUs only, and NPUs are wanted"),
    ({"refused": "no answer"}, 1, "none", {}, "no answer"),
    (7, 1, "none", {}, NO_FACTS + "int"),
    ({"b": 1, "a": 2}, 1, "none", {}, NO_FACTS + "a, b"),
    (BROKEN, 1, "none", {}, "its topology cannot be used (ValueError: cpus.online: '0-x' in '0-x' is not a CPU number"),
    (host([0], family="gpu"), 1, "none", {"npus": 1}, "The host has no NPU to choose from"),
    (NO_POOL, 0, "none", {"npus": 1}, "pool of the plan in force: 'x' in 'x' is not a CPU number"),
]


@pytest.mark.parametrize("node, cpus, policy, others, reason", REASONS)
def test_a_refused_host_has_its_reason_and_others_continue(node, cpus, policy, others, reason):
    found = place({"good": a2(), "h": node}, {"cpus": cpus, "policy": policy, **others})
    assert reasons(found)["h"].startswith(reason)
    assert "h" not in {entry["host"] for entry in found["hosts"]}
    assert node is not BROKEN or reasons(found)["h"].endswith("; gather it again")


MODES = [
    ({"family": "300I_duo_distributed", "npus": 2}, {"duo"}),
    ({"family": "300I_duo_card", "npus": 2}, {"duo"}),
    ({"family": "300I_duo_chip", "npus": 1}, {"duo"}),
    ({"mode": "distributed", "npus": 2}, {"duo"}),
    ({"mode": "card", "npus": 2}, {"duo"}),
    ({"mode": "chip", "npus": 1}, {"a2", "a3", "duo"}),
    ({"npus": 1}, {"a2", "a3", "duo"}),
    ({"npus": 2, "family": "a3_box8"}, {"a3"}),
]


@pytest.mark.parametrize("request_, names", MODES)
def test_modes_select_inference_cards_and_a_family_its_own_hosts(request_, names):
    found = place({"a2": a2(), "a3": a3(), "duo": duo()}, request_)
    assert {entry["host"] for entry in found["hosts"]} == names, found["table"]


def fleet(count, per_switch=4, busy=()):
    def labels(number):
        return {"switch": f"s{number // per_switch}", "position": number % per_switch}

    return {f"h{number:02}": {"topology": a2(range(8) if number in busy else ()), "labels": labels(number)} for number in range(count)}


def pods(count, busy=(), per_pod=6, make=a3, **more):
    return {f"h{number:02}": make(busy=range(8) if number in busy else (), superpod=number // per_pod, **more) for number in range(count)}


def in_racks(*free):
    """Return hosts of the Atlas 950: ``free`` are ``(SuperPod, rack, hosts)``."""
    return {f"p{pod}r{rack}h{number}": a5(superpod=pod, rack=rack) for pod, rack, hosts in free for number in range(hosts)}


def in_tree():
    pods = enumerate([0] * 4 + [1] * 2 + [2] * 4 + [3] * 4)
    label = "huawei.com/topotree.superpodid"
    return {f"h{number:02}": a3("Atlas 900 A3 SuperPoD", npus=16, **{label: pod, "group": pod // 2}) for number, pod in pods}


def whole(replicas, npus=8, **affinity):
    return {"npus": npus, "replicas": replicas, **affinity}


def switch(**more):
    return {"switch": {"schema": "large-model-schema", **more}}


def superpod(**more):
    return {"superpod": more}


def tree(level="huawei.com/topotree.superpodid", levels="level1=4"):
    return {"tree": {"config": {"default": {"level1": {"label": level}, "level2": {"label": "group"}}}, "levels": levels}}


def moved(fleet_, name, **labels):
    """Return a fleet of which a host has other labels."""
    return {**fleet_, name: {**fleet_[name], "labels": {**fleet_[name]["labels"], **labels}}}


TWO = {"one": a2(), "two": a2(busy=range(4))}
BUSY = fleet(12, busy=(1, 2))
PODS = pods(12, busy=(0, 6, 7))
USED = {"a1": a5(superpod=0), **{f"b{number}": a5(busy=range(4) if number == 2 else (), superpod=1) for number in range(3)}}
SERVED = {"prefill": {"labels": {"inferserviceid": "llm"}, "hosts": ["h06", "h07"]}}
ILL = {"s0": {"shared": 1, "healthy": 1}, "s1": {"shared": 1}, "s2": {"spanned_by": ["large-model-schema"]}}
NUMBERED = {name: {**node, "labels": {**node["labels"], "switch": int(name[1:]) // 4}} for name, node in fleet(12).items()}
ODD = {name: {"topology": node, "labels": {"switch": "s"}} for name, node in {"whole": a2(), "zero": SMT}.items()}
# Hosts, the request, and the hosts of its tasks, or why there are none.
NETWORKS = [
    ("best scores first", TWO, whole(3, npus=4), "two one one"),
    ("no room", TWO, whole(4, npus=4), "4 tasks with 4 NPUs each cannot all run at once: the hosts that fit have room for 3"),
    ("the hosts of a switch", BUSY, whole(4, **switch()), "h04 h05 h06 h07"),
    ("positions that do not match", BUSY, whole(11, **switch()), "tor check failed not enough resource: 3 hosts at the same position"),
    ("no label of a switch", {"h": a2()}, whole(1, switch={}), "No host names its switch; set npu_affinity_labels.switch in the inventory"),
    ("two hosts at one position", moved(fleet(4), "h01", position=0), whole(2, switch={}), "Switch s0: two of its hosts have the same"),
    ("a host without position", moved(fleet(4), "h01", position=None), whole(2, switch={}), "Switch s0: two of its hosts have the same"),
    ("a position of no host", moved(fleet(4), "h03", position=7), whole(4, **switch(tor_count=4)), "h00 h01 h02 h03"),
    ("a position that is no number", moved(fleet(4), "h01", position="x"), whole(2, switch={}), "h01: npu_affinity_labels.position: expe"),
    ("a refusal beyond the limit", ODD, {"cpus": 3, "replicas": 2, "limit": 1, "switch": {}}, "2 tasks are wanted, and 1 hosts on usable"),
    ("switches of two hosts", fleet(4), whole(3, **switch(version="single_layer", tor_count=2)), "job's task number is bigger"),
    ("a shared switch that is not healthy first", fleet(12), whole(2, **switch(version="2.0", states=ILL)), "h00 h01"),
    ("switches by number", NUMBERED, whole(2, **switch(version="2.0", states={1: ILL["s0"]})), "h04 h05"),
    ("a switch that another job spans", fleet(12), whole(8, **switch(states={"s0": ILL["s2"]})), "h04 h05 h06 h07 h08 h09 h10 h11"),
    ("one shared switch", BUSY, whole(6, **switch(version="2.0", shared_switches=1, states=ILL)), "h08 h09 h10 h11 h04 h05"),
    ("five hosts: two blocks and the reserve", PODS, whole(4, **superpod(sp_block=16, reserve_nodes=1)), "h01 h02 h03 h04"),
    ("a reserve that moves a job", PODS, whole(4, **superpod(sp_block=16, reserve_nodes=2)), "h08 h09 h01 h02"),
    (
        "too few blocks",
        PODS,
        whole(12, **superpod(sp_block=16, soft="no")),
        "select super pod failed, required 6, total 4: blocks of 2 hosts",
    ),
    ("pieces of blocks", PODS, whole(9, **superpod(sp_block=24, soft=True)), "h08 h09 h10 h01 h02 h03 h04 h05 h11"),
    (
        "and too few hosts",
        PODS,
        whole(10, **superpod(sp_block=40, soft=True)),
        "10 tasks are wanted, and the SuperPods have 9 hosts for them",
    ),
    ("no label of a SuperPod", {"h": a3()}, whole(1, superpod={}), "No host that fits names its SuperPod; set npu_affinity_labels."),
    ("blocks of the Atlas 950", pods(6, per_pod=3, make=a5), whole(2, **superpod(sp_block=16)), "h00 h01"),
    ("a used host before any SuperPod", USED, whole(1, npus=4, superpod={}), "b2"),
    ("the smallest rack that is enough", in_racks((0, 0, 3), (0, 1, 2)), whole(2, superpod={}), "p0r1h0 p0r1h1"),
    ("pieces of two", in_racks((0, 0, 3), (0, 1, 3)), whole(4, **superpod(ra_block=16)), "p0r1h0 p0r1h1 p0r0h0 p0r0h1"),
    ("pieces of four", in_racks((0, 0, 3), (0, 1, 3)), whole(4, **superpod(ra_block=32)), "not found the 1 count of ra-block"),
    ("two blocks", in_racks((0, 0, 3), (1, 0, 3)), whole(4, **superpod(sp_block=16)), "p1r0h0 p1r0h1 p0r0h0 p0r0h1"),
    ("a block over soft racks", in_racks((0, 0, 1), (1, 0, 2)), whole(3, **superpod(soft=True)), "p1r0h0 p1r0h1 p0r0h0"),
    ("memory of a domain", in_racks((0, 0, 4), (0, 16, 5)), whole(9, **superpod(ub_memory=True)), "scheduling failed in UBMemSchedule"),
    ("an instance in one rack", in_racks((0, 0, 3), (0, 1, 3)), whole(4, **superpod(service={"id": "s"})), "infer service schedule failed"),
    ("no power of two", in_racks((0, 0, 1), (0, 1, 2)), whole(2, **superpod(ra_block=3)), "Parameter ra-block(3) must be the power of 2"),
    ("a rack of some", {**in_racks((0, 0, 2)), "new": a5(superpod=0)}, whole(2, superpod={}), "Only some hosts of the Atlas 950 name"),
    ("next to the service", PODS, whole(2, **superpod(service={"id": "llm", "jobs": SERVED})), "h08 h09"),
    ("not next to itself", PODS, whole(2, **superpod(service={"id": "llm", "job": "prefill", "jobs": SERVED})), "h01 h02"),
    ("most free hosts for another service", PODS, whole(2, **superpod(service={"id": "other", "jobs": SERVED})), "h01 h02"),
    ("the fewest fragments", in_tree(), whole(8, npus=16, **tree()), " ".join(f"h{number:02}" for number in range(6, 14))),
    ("over both groups", in_tree(), whole(12, npus=16, **tree()), " ".join(f"h{number:02}" for number in (*range(4), *range(6, 14)))),
    ("a tree that is too small", in_tree(), whole(16, npus=16, **tree()), "tree default: failed to schedule tasks: 14 hosts can take one"),
    ("no label of a tree", in_tree(), whole(4, npus=16, **tree("row")), "tree default: no host that fits has its labels group, row in npu"),
]


@pytest.mark.parametrize("hosts, request_, expected", [row[1:] for row in NETWORKS], ids=[row[0] for row in NETWORKS])
def test_hosts_of_a_job_by_its_network(hosts, request_, expected):
    found = place(hosts, request_)
    if found["placed"]:
        assert " ".join(task["host"] for task in found["tasks"]) == expected
    else:
        assert found["message"].startswith(expected) and found["tasks"] == []


def test_the_best_score_leads_and_selection_adds_to_it():
    request = {"npus": 8, "cpus": 8, "policy": BEST, "replicas": 2, **switch()}
    hosts = place(fleet(8, busy=(0, 1, 2)), request)["hosts"]
    assert [entry["host"] for entry in hosts] == ["h04", "h05", "h03", "h06", "h07"]
    assert [entry["scores"] for entry in hosts] == [{"numa": 0, "npu": 792, "affinity": affinity} for affinity in (100, 100, 0, 0, 0)]
    assert [entry["score"] for entry in hosts] == [892, 892, 792, 792, 792]
    assert [place({"a2": node}, {"npus": 2, "cpus": 20, "policy": BEST})["hosts"][0]["preferred"] for node in (a2(), FAR)] == [True, False]


def test_an_assumed_product_is_reported_until_it_is_named():
    hosts = {"pod": a5(), "x1": a5("Server X", "Ascend950PR", busy=(3,)), "x2": a5("Server X", "Ascend950PR", product="atlas350_8")}
    found = place(hosts, {"npus": 4})
    assert {entry["host"]: entry["family"] for entry in found["hosts"]} == {"pod": "atlas950", "x1": "mesh4_8", "x2": "atlas350_8"}
    (line,) = [line for line in found["table"] if "assumed" in line]
    assert line.startswith("assumed for x1: The facts of the host (product Server X, NPUs Ascend950PR) fit mesh4_8 and atlas350_8")
    found = place(hosts, {"npus": 4, "family": "atlas350_8"})
    assert {entry["host"]: (entry["family"], entry["assumed"]) for entry in found["hosts"]} == dict.fromkeys(
        ["x1", "x2"], ("atlas350_8", "")
    )
    assert reasons(found) == {"pod": "its product is Atlas 950 SuperPoD (atlas950), and atlas350_8 is wanted"}
    (reason,) = reasons(place({"x1": hosts["x1"]}, {"npus": 8})).values()
    assert reason.startswith("no fit: Atlas 350, 8 processors in meshes of 4 cannot give 8 NPUs to a task: 7 chips are free (0-2,4-7); ")
    assert "mesh4_8 is assumed; set npu_affinity_labels.product in the inventory" in reason, "a refusal that rests on it says so, too"


def named(topology, title, chip):
    topology["machine"]["product"] = title
    return {**topology, "npus": [{**npu, "name": chip} for npu in topology["npus"]]}


TREE = {"tree": {"config": {"default": {"level1": {"label": "rack"}}}}}
LAYER = {"switch": {"version": "single_layer"}}
RULE = "(a rule of npu.affinity; MindCluster's scheduler does not check it)"
# The host, its affinity, and what refuses it, or what is not confirmed; '' where it is documented.
PRODUCTS = [
    (a2(), {"switch": {"version": "2.0"}}, "", ""),
    (a2(), LAYER, "", "do not confirm affinity to a single layer of switches for Atlas 800 A2 with an unknown chip (RoCE with two layers"),
    (named(a2(), "", "910B2"), LAYER, "affinity to a single layer of switches: Atlas 800T A2", ""),
    (named(a2(), "", "910B4"), LAYER, "", ""),
    (named(a2(), "", "910B4"), {"switch": {}}, "", "do not confirm switch affinity 1.0 for Atlas 800I A2 (RoCE with one or two layers"),
    (named(a2(), "Atlas 800T A2", "910B4"), {"switch": {}}, "", ""),
    (named(a2(), "Atlas 800I A2", "910B2"), LAYER, "", ""),
    (a2(), {"superpod": {}}, "SuperPods: Atlas 800 A2 with an unknown chip has none, because its hosts are linked by RoCE", ""),
    (a3("Atlas 800T A3", npus=16), {"superpod": {}}, "SuperPods: Atlas 800T A3 has none", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), {"superpod": {}}, "", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), TREE, "", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), {"switch": {}}, "switch affinity 1.0: Atlas 900 A3 SuperPoD has none, because its hosts", ""),
    (a3(), {"superpod": {}}, "", "do not confirm SuperPods for Atlas 9000 A3 SuperPoD"),
    (a5("Atlas 850", product="atlas850"), {"superpod": {}}, "SuperPods: Atlas 850 (standard cluster) has none, because its hosts", ""),
    (a5("Atlas 850", product="atlas850_superpod"), {"superpod": {}}, "", ""),
    (a5("Atlas 850", product="atlas850_superpod"), TREE, "network trees: Atlas 850 (SuperPoD) has none", ""),
    (a5(), TREE, "", "do not confirm network trees for Atlas 950 SuperPoD"),
    (a5("Atlas 350", "Ascend950PR"), {"switch": {}}, "place its jobs without affinity between hosts " + RULE, ""),
]


@pytest.mark.parametrize("node, affinity, refused, open_", PRODUCTS)
def test_affinity_needs_the_network_of_the_product(node, affinity, refused, open_):
    node = {"topology": node.get("topology", node), "labels": {**node.get("labels", {}), "superpod": 0, "switch": "s", "rack": 0}}
    family = {"family": "atlas850"} if node["labels"].get("product") == "atlas850" else {}
    found = place({"h": node}, {"npus": 8, **affinity, **family})
    reason = reasons(found).get("h", "")
    assert refused in reason and (refused == "") == (reason == ""), reason
    assert reason == "" or RULE in reason
    assert [bool(open_) and open_ in entry["assumed"] or entry["assumed"] == open_ for entry in found["hosts"]] == [True] * (not refused)


def test_tasks_of_a_superpod_job_take_whole_hosts():
    found = place(pods(2, title="Atlas 900 A3 SuperPoD"), whole(2, superpod={}))
    assert found["placed"], "eight NPUs are a whole host here"
    nodes = {f"h{number}": a3("Atlas 900 A3 SuperPoD", npus=16, superpod=0) for number in range(2)}
    reason = "size not allowed: tasks of one job in a SuperPod have the 16 NPUs of a host each, not 8"
    assert reasons(place(nodes, whole(2, superpod={})))["h0"] == reason
    found = place(pods(6, make=a5), whole(2, npus=4))
    assert "a task of a job with several tasks on Atlas 950 SuperPoD cannot have 4 NPUs; ask for 8" in reasons(found)["h00"]
    assert place(pods(6, make=a5), whole(1, npus=3, family="atlas950", superpod={}))["placed"]


BAD = [
    ({"family": "300I_duo_card", "mode": "chip", "npus": 2}, "mode: chip contradicts family 300I_duo_card; leave one of them out"),
    ({}, "cpus and npus: a task needs at least one CPU or one NPU"),
    ({"cpus": 1.5}, "cpus: expected a whole number of 0 or more; got 1.5"),
    ({"cpus": True}, "cpus: expected a whole number of 0 or more; got True"),
    ({"cpus": 1, "kubernetes": "maybe"}, "kubernetes: expected true or false; got 'maybe'"),
    ({"cpus": 1, "limit": 0}, "limit: expected a whole number of 1 or more; got 0"),
    ({"cpus": 1, "replicas": "0"}, "replicas: expected a whole number of 1 or more; got '0'"),
    ({"cpus": 1, "policy": "strict"}, "policy: expected one of none, best-effort"),
    ({"cpus": 1, "mode": "die"}, "mode: expected one of chip, card, distributed; got 'die'"),
    ({"cpus": 1, "gpus": 2}, "request: gpus is not known; known are cpus, npus"),
    ({"npus": 1, "family": "a9"}, "family: expected auto or one of"),
    (7, "request: expected a dictionary with some of cpus, npus, policy"),
    (whole(2, npus=16, **superpod(sp_block=24)), "sp-block 24 is not a multiple of the 16 NPUs"),
    (whole(1, npus=3, family="atlas850_superpod", superpod={}), "a single task in a SuperPod has 1-2, 4, 8 NPUs, not 3"),
    (whole(2, family="atlas950", **superpod(ra_block=3)), "Parameter ra-block(3) must be the power of 2"),
    (whole(2, **superpod(reserve_nodes=-1)), "reserve_nodes: expected a whole number of 0 or more; got -1"),
    (whole(2, **superpod(service={"jobs": [1]})), "service: expected jobs as {name: {labels: {inferserviceid: id}, hosts: []}}; got [1]"),
    (whole(2, **superpod(service={"jobs": {"a": {"labels": 7}}})), "service: expected jobs as {name: {labels: {inferserviceid: id}, hosts"),
    ({"cpus": 8, "superpod": {}}, "superpod: blocks are made of NPUs, and npus is 0"),
    (whole(2, **switch(version="3.0")), "switch: expected a version of 1.0, 2.0, single_layer and a schema of large-model-schema, no"),
    (whole(2, switch={"schema": "x"}), "got '1.0' and 'x'"),
    (whole(2, **switch(shared_switches=3)), "shared_switches: a job shares 1 or 2 switches with others, not 3"),
    (whole(2, **switch(tor_count=0)), "tor_count: expected a whole number of 1 or more; got 0"),
    (whole(2, switch={}, superpod={}), "switch and superpod: a job has affinity to switches, SuperPods or a tree, not to both"),
    ({"cpus": 8, **tree()}, "tree: its tasks take whole hosts, and npus is 0"),
    (whole(2, tree={}), "resource-level-config doesn't exist"),
    (whole(2, **tree(levels="level1=3")), "affinity block level1's value 3 can not be divided by upper level's value 2"),
]


@pytest.mark.parametrize("request_, words", BAD)
def test_requests_that_make_no_sense(request_, words):
    returns(words, place, {"h": a2()}, request_)


class Lazy(dict):
    """A dictionary of a template, which Ansible lets nobody construct from pairs."""

    def __init__(self, content):
        assert isinstance(content, dict), "Direct construction of lazy containers is not supported."
        super().__init__(content)


def lazy(value):
    return Lazy({key: lazy(one) for key, one in value.items()}) if isinstance(value, dict) else value


def types(value):
    return {type(value)}.union(*map(types, value.values())) if isinstance(value, dict) else set()


@pytest.mark.parametrize(
    "hosts, request_", [(BUSY, switch(version="2.0", states=ILL)), (PODS, superpod(service={"jobs": SERVED})), (in_tree(), tree())]
)
def test_dictionaries_of_templates_are_returned_as_plain_data(hosts, request_):
    request_ = whole(4, npus=16 if "tree" in request_ else 8, **request_)
    found = place(hosts, lazy(request_))
    assert found["placed"] and found == place(hosts, request_)
    assert types(found["request"]) == {dict}


TABLE = """\
3 tasks with 4 NPUs and 10 CPUs each can run on h00, h01.

task  host  NPUs  CPUs    NUMA
0     h00   0-3   96-105  4
1     h00   4-7   0-9     0
2     h01   0-3   96-105  4

rank  host  score  numa  npu  affinity  NPUs  CPUs    NUMA
1     h00   792    0     792  0         0-3   96-105  4
2     h01   792    0     792  0         0-3   96-105  4
… and 1 more host that fit

refused n0, n1, n2 and 2 more: the host is described by CPUs only, and NPUs are wanted"""


def test_nothing_of_the_input_is_changed_and_the_table_tells_all():
    nodes = {**fleet(3), **{f"n{number}": numbers(RESTRICTED, (1, 1)) for number in range(5)}}
    before = copy.deepcopy(nodes)
    found = place(nodes, {"npus": 4, "cpus": 10, "replicas": 3, "limit": 2})
    assert nodes == before and found["fitting"] == 3
    assert "\n".join(found["table"]) == TABLE
