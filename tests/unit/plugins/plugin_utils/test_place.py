# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where jobs can run in a fleet: the examples of the documents, and what hosts with and without kubelets and plans give."""

from __future__ import annotations

import copy

import pytest
from planner_hosts import a2, host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.place import numa_score, place
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan


def numbers(policy, free, capacity=16, **more):
    """Return a host of which only numbers are known, with two NUMA nodes."""
    return {"policy": policy, "capacity": {"0": capacity, "1": capacity}, "free": {"0": free[0], "1": free[1]}, **more}


def hosts_of(found):
    return {entry["host"]: entry["numa"] for entry in found["hosts"]}


def reasons(found):
    return {entry["host"]: entry["reason"] for entry in found["refused"]}


CCE = {
    "node-1": numbers("best-effort", (7, 7)),
    "node-2": numbers("restricted", (7, 7)),
    "node-3": numbers("restricted", (7, 10)),
    "node-4": numbers("single-numa-node", (7, 10)),
}
"""The first example of the page "NUMA Affinity Scheduling" of Huawei Cloud CCE."""


@pytest.mark.parametrize(
    ("cpus", "policy", "expected"),
    [(9, "best-effort", {"node-1": [0, 1]}), (11, "restricted", {}), (17, "restricted", {"node-3": [0, 1]}), (17, "single-numa-node", {})],
)
def test_the_first_example_of_cce(cpus, policy, expected):
    found = place(CCE, {"cpus": cpus, "policy": policy, "weight": 10})
    assert hosts_of(found) == expected
    assert found["placed"] == bool(expected)
    assert len(found["refused"]) == 4 - len(expected)


def test_the_second_example_of_cce():
    nodes = {
        "node-1": numbers("single-numa-node", (16, 16)),
        "node-2": numbers("best-effort", (16, 16)),
        "node-3": numbers("best-effort", (20, 20), 20),
    }
    assert hosts_of(place(nodes, {"cpus": 2, "policy": "single-numa-node"})) == {"node-1": [0]}
    found = place(nodes, {"cpus": 20, "policy": "best-effort", "weight": 10})
    assert [(entry["host"], entry["scores"]["numa"]) for entry in found["hosts"]] == [("node-3", 500), ("node-2", 0)]


def test_the_scores_of_cce():
    assert [numa_score(used, 4, 10) for used in (1, 2, 4)] == [750, 500, 0]
    assert [numa_score(0, 0, weight) for weight in (1, 10)] == [100, 1000]


def test_a_task_without_numa_nodes_scores_all_hosts_alike():
    nowhere = {"npus": [{**npu, "numa": None} for npu in a2()["npus"]]}
    hosts = {"one": {**a2(), **nowhere}, "two": {**a2(), **nowhere}}
    found = place(hosts, {"npus": 1, "policy": "best-effort"})
    assert [entry["scores"]["numa"] for entry in found["hosts"]] == [100, 100]
    assert [entry["numa"] for entry in (*found["hosts"], *found["tasks"])] == [list(range(8))] * 3, "a policy without hint admits all"
    assert place(hosts, {"npus": 1})["tasks"][0]["numa"] == []


def duo():
    topology = host([0, 0, 0, 0, 2, 2, 2, 2], nodes=4, cores=32, family="310p")
    for npu in topology["npus"]:
        npu.update(card=npu["id"] // 2, chip=npu["id"] % 2, pci=f"0000:0{npu['id'] // 2}:00.0")
    return topology


MODES = [
    ({"family": "300I_duo_distributed", "npus": 2}, {"duo"}),
    ({"family": "300I_duo_card", "npus": 2}, {"duo"}),
    ({"family": "300I_duo_chip", "npus": 1}, {"duo"}),
    ({"mode": "distributed", "npus": 2}, {"duo"}),
    ({"mode": "card", "npus": 2}, {"duo"}),
    ({"mode": "chip", "npus": 1}, {"a2", "duo"}),
    ({"npus": 1}, {"a2", "duo"}),
]


@pytest.mark.parametrize("request_, names", MODES)
def test_modes_select_inference_cards_and_a_family_its_own_hosts(request_, names):
    found = place({"a2": a2(), "duo": duo()}, request_)
    assert {entry["host"] for entry in found["hosts"]} == names, found["table"]


def test_cpus_of_busy_npus_are_taken_by_function_not_by_id():
    topology = a2(busy=(1,))
    before = {**topology, "applied": {"npus": plan(topology)["npus"]}}
    closed_up = [{**npu, "id": npu["id"] - 1} for npu in topology["npus"][1:]]
    (entry,) = place({"a2": {**before, "npus": closed_up}}, {"cpus": 168})["hosts"]
    assert entry["cpus"] == "0-167", "168-191 are those of the busy NPU, which had the id 1"


def test_volcano_looks_at_hosts_with_a_static_cpu_manager_only():
    nodes = {
        "shared": numbers("best-effort", (9, 9), cpu_policy="none"),
        "taken": numbers("best-effort", (0, 0)),
        "bare": host([0, 1], nodes=2),
    }
    told = reasons(place(nodes, {"cpus": 2, "policy": "best-effort", "kubernetes": True}))
    assert told == {
        "bare": "numa info is empty: there are no kubelet files on the host",
        "shared": "cpu manager policy isn't static: the kubelet's is none",
        "taken": "cpu allocatable map is empty: all CPUs are reserved or given to containers",
    }
    assert hosts_of(place(nodes, {"cpus": 2})).keys() == {"shared", "bare"}, "policy none looks at nothing but the number"


def kubelet(policy, default, **more):
    return {"policy": "static", "topology_policy": policy, "default_cpus": default, "exclusive": {}, "warnings": [], **more}


SHARED = a2(kubelet=kubelet("restricted", "0-7,144-190", reserved_cpus="0-1,144-147"))
SMT = {**host([0, 1], nodes=2, cores=4, threads=2), "kubelet": kubelet("restricted", "0-15", options={"full-pcpus-only": "true"})}


def test_chips_cpus_and_numa_nodes_of_a_host_belong_together():
    found = place({"a2": a2(busy=(0, 1))}, {"npus": 2, "cpus": 20, "policy": "single-numa-node"})
    (entry,) = found["hosts"]
    assert (entry["npus"], entry["cpus"], entry["numa"]) == ([2, 3], "96-115", [4])
    assert entry["preferred"] and entry["family"] == "a2"
    assert entry["scores"] == {"numa": 0, "npu": 794, "affinity": 0}


@pytest.mark.parametrize(
    ("kubelet_", "cpus", "nodes"),
    [
        (None, "144-163", [6]),
        (kubelet("none", "0-191"), "0-19", [0]),
        (kubelet("best-effort", "0-191"), "144-163", [6]),
        ({**kubelet("none", "0-191"), "policy": "none"}, "144-163", [6]),
    ],
)
def test_cpus_without_a_policy_are_near_the_npus(kubelet_, cpus, nodes):
    (task,) = place({"a2": a2(kubelet=kubelet_)}, {"npus": 1, "cpus": 20})["tasks"]
    assert (task["npus"], task["cpus"], task["numa"]) == ([0], cpus, nodes)


def test_a_static_kubelet_offers_shared_cpus_minus_reserved_ones():
    found = place({"a2": SHARED}, {"npus": 1, "cpus": 20, "policy": "restricted"})
    assert found["hosts"][0]["cpus"] == "148-167"
    quantity = a2(kubelet=kubelet("restricted", "0-191", reserved_millicpus=1500))
    assert place({"a2": quantity}, {"cpus": 190})["tasks"][0]["cpus"] == "2-191", "one and a half CPUs are the lowest two cores"


def test_a_bound_host_gives_the_pools_of_idle_npus():
    topology = a2(busy=(4,))
    made = plan(topology)
    bound = {**topology, "applied": made}
    pools = {entry["id"]: entry["pool"] for entry in made["npus"]}
    assert place({"a2": bound}, {"npus": 2})["tasks"][0]["cpus"] == compress(expand(pools[0]) + expand(pools[1]))
    few = place({"a2": bound}, {"npus": 1, "cpus": 8, "policy": "best-effort"})["tasks"][0]["cpus"]
    assert set(expand(few)) <= set(expand(pools[0]))
    everything = place({"a2": bound}, {"cpus": 192 - len(expand(pools[4]))})["tasks"][0]["cpus"]
    assert not set(expand(everything)) & set(expand(pools[4])), "a busy NPU keeps its pool"


def test_a_task_as_large_as_a_pool_gets_it_and_a_larger_one_more():
    topology = a2()
    bound = {**topology, "applied": plan(topology)}
    pool = bound["applied"]["npus"][0]["pool"]
    assert pool == "144-167"
    exact, larger = (place({"a2": bound}, {"npus": 1, "cpus": cpus})["tasks"][0]["cpus"] for cpus in (24, 25))
    assert exact == pool and len(expand(larger)) == 25


def test_all_free_cpus_fit_and_one_more_does_not():
    assert place({"a2": a2()}, {"cpus": 192})["tasks"][0]["cpus"] == "0-191"
    assert reasons(place({"a2": a2()}, {"cpus": 193}))["a2"].startswith("193 CPUs are wanted, and 192 are free: 24 on NUMA node 0, ")


def test_tasks_are_placed_one_after_the_other_and_never_share():
    found = place({"one": a2(), "two": a2(busy=(0, 1, 2, 3))}, {"npus": 4, "cpus": 40, "replicas": 3, "policy": "best-effort"})
    assert found["placed"] and len(found["tasks"]) == 3
    for name in ("one", "two"):
        tasks = [task for task in found["tasks"] if task["host"] == name]
        for what in ("npus", "cpus"):
            given = [number for task in tasks for number in (task[what] if what == "npus" else expand(task[what]))]
            assert len(given) == len(set(given)), (name, what)
    found = place({"one": a2(), "two": a2(busy=(0, 1, 2, 3))}, {"npus": 4, "replicas": 4})
    assert not found["placed"] and found["tasks"] == []
    assert found["message"] == "4 tasks with 4 NPUs each cannot all run at once: the hosts that fit have room for 3"


def test_tasks_on_hosts_of_which_only_numbers_are_known():
    found = place({"node": numbers("best-effort", (7, 10))}, {"cpus": 8, "replicas": 2, "policy": "best-effort"})
    assert [task["numa"] for task in found["tasks"]] == [[1], [0, 1]]
    assert not place({"node": numbers("best-effort", (7, 10))}, {"cpus": 8, "replicas": 3, "policy": "best-effort"})["placed"]


def a3(title="Atlas 9000 A3 SuperPoD", busy=(), npus=8, **labels):
    topology = host([0, 0, 0, 0, 1, 1, 1, 1] * (npus // 8), nodes=2, cores=64, family="a3")
    topology["machine"]["product"] = title
    topology["npus"] = [{**npu, "busy": npu["id"] in busy} for npu in topology["npus"]]
    return {"topology": topology, "labels": labels}


def fleet(count, per_switch=4, per_superpod=6, busy=()):
    return {
        f"h{number:02}": {
            "topology": a2(busy=range(8) if number in busy else ()),
            "labels": {"switch": f"s{number // per_switch}", "position": number % per_switch, "superpod": number // per_superpod},
        }
        for number in range(count)
    }


def test_switches_come_from_labels_and_only_fitting_hosts_count():
    request = {"npus": 8, "replicas": 4, "switch": {"version": "1.0", "schema": "large-model-schema"}}
    found = place(fleet(12, busy=(1, 2)), request)
    assert [task["host"] for task in found["tasks"]] == ["h04", "h05", "h06", "h07"]
    assert {entry["host"] for entry in found["hosts"] if entry["scores"]["affinity"]} == {"h04", "h05", "h06", "h07"}
    assert found["hosts"][0]["host"] == "h04", "selected hosts lead the ranking"
    request["replicas"] = 11
    assert "position number" in place(fleet(12, busy=(1, 2)), request)["message"]
    assert "set npu_affinity_labels.switch" in place({"h": a2()}, request)["message"]


def test_the_best_score_leads_and_selection_adds_to_it():
    request = {"npus": 8, "cpus": 8, "policy": "best-effort", "replicas": 2, "switch": {"version": "1.0", "schema": "large-model-schema"}}
    nodes = fleet(8, busy=(0, 1, 2))
    hosts = place(nodes, request)["hosts"]
    assert [entry["host"] for entry in hosts] == ["h04", "h05", "h03", "h06", "h07"]
    assert [entry["scores"]["affinity"] for entry in hosts] == [100, 100, 0, 0, 0]
    (others,) = {entry["scores"]["numa"] + entry["scores"]["npu"] for entry in hosts}
    assert others > 0 and [entry["score"] for entry in hosts] == [others + 100] * 2 + [others] * 3
    one_node, two_nodes = numbers("best-effort", (16, 16)), numbers("best-effort", (7, 7))
    found = place({"a": two_nodes, "b": one_node}, {"cpus": 9, "policy": "best-effort", "weight": 10})
    assert [(entry["host"], entry["score"]) for entry in found["hosts"]] == [("b", 500), ("a", 0)]


def test_two_hosts_at_one_position_are_named():
    nodes = fleet(4)
    nodes["h01"]["labels"]["position"] = 0
    assert "two of its hosts have the same position" in place(nodes, {"npus": 8, "replicas": 2, "switch": {}})["message"]


def a3_fleet(count, busy=()):
    return {f"h{number:02}": a3(busy=range(8) if number in busy else (), superpod=number // 6) for number in range(count)}


def test_superpods_give_whole_blocks():
    request = {"npus": 8, "replicas": 4, "superpod": {"sp_block": 16, "reserve_nodes": 1}}
    found = place(a3_fleet(12, busy=(0, 6, 7)), request)
    assert [task["host"] for task in found["tasks"]] == ["h01", "h02", "h03", "h04"], "five hosts: two blocks and the reserve"
    request["replicas"] = 12
    assert place(a3_fleet(12, busy=(0, 6, 7)), request)["message"].startswith("select super pod failed, required 6, total 4")
    assert "names its SuperPod" in place({"h": a3()}, request)["message"]


def a5(title, name="Ascend950DT", busy=(), **labels):
    """Return a host with eight NPUs of a product with Ascend 950, and its labels."""
    topology = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=64, family="a5")
    topology["machine"]["product"] = title
    topology["npus"] = [{**npu, "name": name, "busy": npu["id"] in busy} for npu in topology["npus"]]
    return {"topology": topology, "labels": labels}


def test_an_assumed_product_is_reported_until_it_is_named():
    hosts = {
        "pod": a5("Atlas 950 SuperPoD"),
        "x1": a5("Server X", "Ascend950PR"),
        "x2": a5("Server X", "Ascend950PR", product="atlas350_8"),
    }
    found = place(hosts, {"npus": 4})
    assert {entry["host"]: entry["family"] for entry in found["hosts"]} == {"pod": "atlas950", "x1": "mesh4_8", "x2": "atlas350_8"}
    (line,) = [line for line in found["table"] if "assumed" in line]
    assert line.startswith("assumed for x1: The facts of the host (product Server X, NPUs Ascend950PR) fit mesh4_8 and atlas350_8")
    found = place(hosts, {"npus": 4, "family": "atlas350_8"})
    assert [(entry["host"], entry["family"], entry["assumed"]) for entry in found["hosts"]] == [
        ("x1", "atlas350_8", ""),
        ("x2", "atlas350_8", ""),
    ]
    assert reasons(found) == {"pod": "its product is Atlas 950 SuperPoD (atlas950), and atlas350_8 is wanted"}


def test_a_refusal_that_rests_on_an_assumption_says_so():
    hosts = {"x": a5("Server X", "Ascend950PR", busy=(3, 4))}
    (reason,) = reasons(place(hosts, {"npus": 4})).values()
    assert reason.startswith("no fit: Atlas 350, 8 processors in meshes of 4 cannot give 4 NPUs to a task: free are 0-2,5-7, ")
    assert "mesh4_8 is assumed; set npu_affinity_labels.product in the inventory" in reason
    assert place(hosts, {"npus": 4, "family": "atlas350_8"})["placed"]


FAR = a2(busy=(0, 2))
WHEN_EMPTY = "CPUs fit one NUMA node when the host is empty, but free are"
CAN_BE = "a host with 8 chips of the family a5 can be"
# The host, CPUs and policy of the request, what else it asks for, and the reason.
REASONS = [
    (CCE["node-1"], 11, "restricted", {}, "task topology policy[restricted] is different with node[best-effort]"),
    (CCE["node-3"], 11, "restricted", {}, f"restricted: 11 {WHEN_EMPTY} 7 on NUMA node 0, 10 on NUMA node 1"),
    (CCE["node-4"], 17, "single-numa-node", {}, "single-numa-node: no NUMA node of the host has 17 CPUs, even when it is empty"),
    (CCE["node-4"], 18, "single-numa-node", {}, "18 CPUs are wanted, and 17 are free: 7 on NUMA node 0, 10 on NUMA node 1"),
    (SHARED, 24, "restricted", {}, f"restricted: 24 {WHEN_EMPTY} 6 on NUMA node 0, "),
    (SMT, 3, "restricted", {}, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (a2(), 30, "restricted", {"npus": 2}, "restricted: NPUs 0-1 are on NUMA node 6, and 30 CPUs do not fit exactly there"),
    (FAR, 20, "single-numa-node", {"npus": 2}, "single-numa-node: NPUs 1, 3 are on NUMA nodes 4, 6, and fewer nodes could hold 2"),
    (a2(), 0, "none", {"npus": 2, "mode": "distributed"}, "mode distributed hands out inference cards, and its product is Atlas 800"),
    (a2(), 0, "none", {"npus": 2, "family": "a3"}, "its product is Atlas 800T A2 or Atlas 900 A2 unit (a2), and a3 is wanted"),
    (a5("X", "Ascend950PR", product="a3"), 0, "none", {"npus": 4}, f"npu_affinity_labels.product is 'a3'; {CAN_BE} atlas350_8, "),
    (7, 1, "none", {}, "expected the fact npu_affinity_topology"),
    ({"cpus": {"online": "0-x"}, "npus": []}, 1, "none", {}, "its topology cannot be used (ValueError: cpus.online: '0-x' in '0-x' is not"),
    (host([0], family="gpu"), 1, "none", {"npus": 1}, "The host has no NPU to choose from"),
]


@pytest.mark.parametrize("node, cpus, policy, others, reason", REASONS)
def test_a_refused_host_has_its_reason_and_others_continue(node, cpus, policy, others, reason):
    found = place({"good": a2(), "h": node}, {"cpus": cpus, "policy": policy, **others})
    assert reasons(found)["h"].startswith(reason)
    assert "h" not in hosts_of(found)


def test_distant_chips_chosen_by_the_rule_are_not_preferred():
    found = place({"a2": FAR}, {"npus": 2, "cpus": 20, "policy": "best-effort"})
    assert found["hosts"][0]["preferred"] is False


def test_job_tasks_in_an_ascend_950_superpod_get_whole_hosts():
    hosts = {f"h{number}": a5("Atlas 950 SuperPoD", superpod=number // 3) for number in range(6)}
    found = place(hosts, {"npus": 4, "replicas": 2})
    assert "a task of a job with several tasks on Atlas 950 SuperPoD cannot have 4 NPUs; ask for 8" in reasons(found)["h0"]
    found = place(hosts, {"npus": 8, "replicas": 2, "superpod": {"sp_block": 16}})
    assert [task["host"] for task in found["tasks"]] == ["h0", "h1"]
    assert place(hosts, {"npus": 3, "family": "atlas950", "superpod": {}})["placed"]
    with pytest.raises(ValueError, match="a single task in a SuperPod has 1-2, 4, 8 NPUs, not 3"):
        place(hosts, {"npus": 3, "family": "atlas850_superpod", "superpod": {}})


def named(topology, title, chip):
    topology["machine"]["product"] = title
    return {**topology, "npus": [{**npu, "name": chip} for npu in topology["npus"]]}


TREE = {"config": {"default": {"level1": {"label": "rack"}}}, "levels": "level1=1"}
RULE = "(a rule of npu.affinity; MindCluster's scheduler does not check it)"
# The host, its affinity, and what refuses it, or what is not confirmed; '' where it is documented.
NETWORKS = [
    (a2(), {"switch": {"version": "2.0"}}, "", ""),
    (a2(), {"switch": {"version": "single_layer"}}, "", "do not confirm affinity to a single layer of switches for Atlas 800 A2 with"),
    (named(a2(), "", "910B2"), {"switch": {"version": "single_layer"}}, "affinity to a single layer of switches: Atlas 800T A2", ""),
    (named(a2(), "", "910B4"), {"switch": {"version": "single_layer"}}, "", ""),
    (named(a2(), "", "910B4"), {"switch": {}}, "", "do not confirm switch affinity 1.0 for Atlas 800I A2 (RoCE with one or two layers"),
    (named(a2(), "Atlas 800T A2", "910B4"), {"switch": {}}, "", ""),
    (a2(), {"superpod": {}}, "SuperPods: Atlas 800 A2 with an unknown chip has none, because its hosts are linked by RoCE", ""),
    (a3("Atlas 800T A3", npus=16), {"superpod": {}}, "SuperPods: Atlas 800T A3 has none", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), {"superpod": {}}, "", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), {"tree": TREE}, "", ""),
    (a3("Atlas 900 A3 SuperPoD", npus=16), {"switch": {}}, "switch affinity 1.0: Atlas 900 A3 SuperPoD has none, because its hosts", ""),
    (a3(), {"superpod": {}}, "", "do not confirm SuperPods for Atlas 9000 A3 SuperPoD"),
    (a5("Atlas 850", product="atlas850"), {"superpod": {}}, "SuperPods: Atlas 850 (standard cluster) has none, because its hosts", ""),
    (a5("Atlas 850", product="atlas850_superpod"), {"superpod": {}}, "", ""),
    (a5("Atlas 850", product="atlas850_superpod"), {"tree": TREE}, "network trees: Atlas 850 (SuperPoD) has none", ""),
    (a5("Atlas 950 SuperPoD"), {"tree": TREE}, "", "do not confirm network trees for Atlas 950 SuperPoD"),
    (a5("Atlas 350", "Ascend950PR"), {"switch": {}}, "place its jobs without affinity between hosts " + RULE, ""),
]


@pytest.mark.parametrize("node, way, refused, open_", NETWORKS)
def test_affinity_needs_the_network_of_the_product(node, way, refused, open_):
    node = {"topology": node.get("topology", node), "labels": {**node.get("labels", {}), "superpod": 0, "switch": "s", "rack": 0}}
    family = {"family": "atlas850"} if node["labels"].get("product") == "atlas850" else {}
    found = place({"h": node}, {"npus": 8, **way, **family})
    reason = reasons(found).get("h", "")
    assert refused in reason and (refused == "") == (reason == ""), reason
    assert reason == "" or reason.endswith(RULE) or RULE in reason
    assert [bool(open_) and open_ in entry["assumed"] or entry["assumed"] == open_ for entry in found["hosts"]] == [True] * (not refused)


def test_tasks_of_a_superpod_job_take_whole_hosts():
    nodes = {f"h{number}": a3("Atlas 900 A3 SuperPoD", npus=16, superpod=0) for number in range(2)}
    found = place(nodes, {"npus": 8, "replicas": 2, "superpod": {}})
    assert reasons(found)["h0"] == "size not allowed: tasks of one job in a SuperPod have the 16 NPUs of a host each, not 8"


def rack_fleet(*free):
    """Return hosts of the Atlas 950: ``free`` are ``(SuperPod, rack, hosts)``."""
    return {
        f"p{pod}r{rack}h{number}": a5("Atlas 950 SuperPoD", superpod=pod, rack=rack) for pod, rack, hosts in free for number in range(hosts)
    }


@pytest.mark.parametrize(
    "free, replicas, wanted, racks",
    [
        ([(0, 0, 3), (0, 1, 2)], 2, {}, ["p0r1", "p0r1"]),
        ([(0, 0, 3), (0, 1, 3)], 4, {"ra_block": 16}, ["p0r1", "p0r1", "p0r0", "p0r0"]),
        ([(0, 0, 3), (0, 1, 3)], 4, {"ra_block": 32}, "not found the 1 count of ra-block: no rack has 4 free hosts"),
        ([(0, 0, 3), (1, 0, 3)], 4, {"sp_block": 16}, ["p1r0", "p1r0", "p0r0", "p0r0"]),
        ([(0, 0, 3), (0, 1, 3)], 4, {"service": {"id": "s"}}, "infer service schedule failed, required 1 sp-block, got 0"),
        ([(0, 0, 1), (0, 1, 2)], 2, {"ra_block": 3}, "Parameter ra-block(3) must be the power of 2"),
    ],
)
def test_racks_of_the_atlas_950(free, replicas, wanted, racks):
    found = place(rack_fleet(*free), {"npus": 8, "replicas": replicas, "superpod": wanted})
    if isinstance(racks, str):
        assert found["message"].startswith(racks) and not found["placed"]
    else:
        assert [task["host"][:4] for task in found["tasks"]] == racks, found["message"]


def test_racks_are_named_for_all_hosts_or_none():
    nodes = {**rack_fleet((0, 0, 2)), "new": a5("Atlas 950 SuperPoD", superpod=0)}
    found = place(nodes, {"npus": 8, "replicas": 2, "superpod": {}})
    assert found["message"] == "Only some hosts of the Atlas 950 name their rack; set npu_affinity_labels.rack of new, too"


def test_an_instance_joins_the_superpod_of_its_service():
    nodes = a3_fleet(12, busy=(0, 6, 7))
    jobs = {"prefill": {"labels": {"inferserviceid": "llm"}, "hosts": ["h06", "h07"]}}
    request = {"npus": 8, "replicas": 2, "superpod": {"service": {"id": "llm", "jobs": jobs}}}
    assert [task["host"] for task in place(nodes, request)["tasks"]] == ["h08", "h09"]
    request["superpod"]["service"] = {"id": "other", "jobs": jobs}
    assert [task["host"] for task in place(nodes, request)["tasks"]] == ["h01", "h02"], "most free hosts first"


def test_a_tree_of_labels_gives_blocks_with_the_fewest_fragments():
    levels = {"level1": {"label": "huawei.com/topotree.superpodid", "reservedNode": 0}, "level2": {"label": "group"}}
    nodes = {
        f"h{number:02}": a3("Atlas 900 A3 SuperPoD", npus=16, **{"huawei.com/topotree.superpodid": pod, "group": pod // 2})
        for number, pod in enumerate([0] * 4 + [1] * 2 + [2] * 4 + [3] * 4)
    }
    tree = {"config": {"default": levels}, "levels": "level1=4"}
    found = place(nodes, {"npus": 16, "replicas": 8, "tree": tree})
    assert [task["host"] for task in found["tasks"]] == [f"h{number:02}" for number in range(6, 14)]
    assert place(nodes, {"npus": 16, "replicas": 12, "tree": tree})["placed"], "over both groups"
    assert "tree default: failed to schedule tasks" in place(nodes, {"npus": 16, "replicas": 16, "tree": tree})["message"]
    tree["config"] = {"default": {"level1": {"label": "row"}}}
    assert "no host that fits has its labels row" in place(nodes, {"npus": 16, "replicas": 4, "tree": tree})["message"]


def test_a_single_task_fills_a_used_host_before_any_superpod():
    hosts = {"a1": a5("Atlas 950 SuperPoD", superpod=0)}
    hosts |= {f"b{number}": a5("Atlas 950 SuperPoD", busy=range(4) if number == 2 else (), superpod=1) for number in range(3)}
    assert [task["host"] for task in place(hosts, {"npus": 4, "superpod": {}})["tasks"]] == ["b2"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"family": "300I_duo_card", "mode": "chip", "npus": 2}, "mode: chip contradicts family 300I_duo_card; leave one of them out"),
        ({}, "cpus and npus: a task needs at least one CPU or one NPU"),
        ({"cpus": 1.5}, "cpus: expected a whole number of 0 or more; got 1.5"),
        ({"cpus": 1, "policy": "strict"}, "policy: expected one of none, best-effort"),
        ({"cpus": 1, "gpus": 2}, "request: gpus is not known; known are cpus, npus"),
        ({"npus": 1, "family": "a9"}, "family: expected auto or one of"),
        ({"npus": 16, "replicas": 2, "superpod": {"sp_block": 24}}, "sp-block 24 is not a multiple of the 16 NPUs"),
        ({"npus": 8, "switch": {"version": "3.0"}}, "switch: expected a version of 1.0, 2.0, single_layer"),
        ({"npus": 8, "switch": {"shared_switches": 3}}, "shares 1 or 2 switches"),
        ({"npus": 8, "switch": {}, "superpod": {}}, "not to both"),
        ({"cpus": 8, "superpod": {}}, "blocks are made of NPUs"),
    ],
)
def test_requests_that_make_no_sense(request_, words):
    with pytest.raises(ValueError, match=".") as refused:
        place({"h": a2()}, request_)
    assert words in str(refused.value)


class Lazy(dict):
    """A dictionary of a template, which Ansible lets nobody construct from pairs."""

    def __init__(self, content):
        assert isinstance(content, dict), "Direct construction of lazy containers is not supported."
        super().__init__(content)


def test_dictionaries_of_templates_are_returned_as_plain_data():
    jobs = Lazy({"old": Lazy({"labels": Lazy({"inferserviceid": "llm"}), "hosts": ["h01"]})})
    found = place(a3_fleet(2, busy=(1,)), {"npus": 8, "superpod": Lazy({"service": Lazy({"id": "llm", "jobs": jobs})})})
    assert found["tasks"][0]["host"] == "h00"
    returned = found["request"]["superpod"]["service"]["jobs"]
    assert returned == jobs and type(returned) is type(returned["old"]["labels"]) is dict
    tree = Lazy({"config": Lazy({"default": Lazy({"level1": Lazy({"label": "superpod"})})})})
    assert place(a3_fleet(1), {"npus": 8, "tree": tree})["tasks"][0]["host"] == "h00"
    states = Lazy({"s0": Lazy({"shared": 2})})
    found = place(fleet(2), {"npus": 8, "switch": Lazy({"version": "2.0", "states": states})})
    assert not isinstance(found["request"]["switch"]["states"]["s0"], Lazy)


def test_hosts_that_cannot_be_used_leave_the_others():
    found = place({"good": a2(), "odd": 7, "bad": {"cpus": {"online": "0-x"}, "npus": []}}, {"npus": 1})
    assert hosts_of(found).keys() == {"good"} and reasons(found)["bad"].endswith("; gather it again")
    found = place({"a2": a2(), "a3": host([0, 0, 1, 1] * 4, nodes=2, family="a3")}, {"npus": 2, "family": "a3"})
    assert hosts_of(found).keys() == {"a3"}


def test_nothing_of_the_input_is_changed_and_the_table_tells_all():
    nodes = {**fleet(3), "numbers": numbers("restricted", (1, 1))}
    before = copy.deepcopy(nodes)
    found = place(nodes, {"npus": 4, "cpus": 10, "replicas": 2, "policy": "none", "limit": 2})
    assert nodes == before
    assert found["fitting"] == 3 and len(found["hosts"]) == 2
    table = "\n".join(found["table"])
    assert "… and 1 more host that fit" in table and "\ntask  host" in table
    assert "refused numbers: the host is described by CPUs only" in table
