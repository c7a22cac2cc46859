# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A card drops off the bus of a running host: the others close up in their ids and must not move."""

import copy
import json

import pytest
from planner_hosts import bound, host, plan, pools, switch_off

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.simulator.faults import lose_card, lose_chip
from tests.simulator.generate import generate

NODES = [6, 4, 6, 4, 0, 2, 0, 2]
BEFORE = plan(host(NODES))
KEPT = [entry for entry in BEFORE["npus"] if entry["id"] != 3]


def without(lost, applied, topology=None):
    """Return the host after cards were lost, with ids that closed up, and with the plan in force."""
    topology = topology or host(NODES)
    others = [card for card in topology["npus"] if card["id"] not in lost]
    return bound({**topology, "npus": [{**card, "id": number} for number, card in enumerate(others)]}, applied)


def smallest(made):
    """Return as much of a plan as is needed: ids, PCI functions and pools."""
    return {"npus": [{key: entry[key] for key in ("id", "card", "pci", "pool")} for entry in made["npus"]]}


REMEMBERED = [
    # the plan in force, the option memory now, and memory_nodes of NPU 0
    ("the whole plan", BEFORE, "wide", "6-7"),
    ("ids, functions and pools", smallest(BEFORE), "wide", "6-7"),
    ("other memory, and no other pool", BEFORE, "strict", "6"),
    ("memory left alone", BEFORE, "none", ""),
]


@pytest.mark.parametrize("applied, memory, nodes", [row[1:] for row in REMEMBERED], ids=[row[0] for row in REMEMBERED])
def test_the_others_keep_what_they_have(applied, memory, nodes):
    after = plan(without([3], applied), memory=memory)
    assert [entry["id"] for entry in after["npus"]] == list(range(7))
    assert after["npus"][0]["memory_nodes"] == nodes
    of_card = {"id": None, "memory_nodes": None}
    assert [{**entry, **of_card} for entry in after["npus"]] == [{**entry, **of_card} for entry in KEPT]
    assert [{**entry, "memory_nodes": ""} for entry in after["lost"]] == [{**BEFORE["npus"][3], "memory_nodes": ""}]
    assert after["warnings"] == [
        "NPU 3 (PCI 0000:04:00.0) of the plan in force cannot be found, and the others keep their pools and slices; "
        "npu_affinity_replan: true plans again for those that are there."
    ]
    anew = plan(without([3], applied), memory=memory, replan=True)
    assert (pools(anew) != pools(after), anew["lost"], anew["warnings"]) == (True, [], []), "a new plan would have moved somebody"


KV = [{"name": "decode", "npus": [4], "roles": {"kv": 2}}]


def test_roles_of_a_workload_stay_with_it():
    before = plan(host(NODES), workloads=KV)
    after = plan(without([3], before), workloads=KV)
    assert [(entry["slice"], entry["kv"]) for entry in after["npus"] if "kv" in entry] == [("npu-4.slice", before["npus"][4]["kv"])]
    assert after["lost"] == [before["npus"][3]]
    changed = [(before, None, []), (before, [{**KV[0], "npus": [5]}], ["npu-5.slice"]), (BEFORE, KV, ["npu-4.slice"])]
    for applied, workloads, slices in changed:
        fresh = plan(without([3], applied), workloads=workloads)
        assert "workloads has changed since" in fresh["lost"][0]["released"]
        assert [entry["slice"] for entry in fresh["npus"] if "kv" in entry] == slices


def test_a_second_card_is_lost_and_then_one_comes_back():
    first = plan(without([3], BEFORE))
    second = plan(without([0, 3], first))
    assert [entry["pci"] for entry in second["lost"]] == ["0000:01:00.0", "0000:04:00.0"]
    assert [entry["slice"] for entry in second["npus"]] == [f"npu-{number}.slice" for number in (1, 2, 4, 5, 6, 7)]
    one_back = plan(without([0], second))
    assert one_back["npus"][2] == {**BEFORE["npus"][3], "id": 2}
    assert [entry["pci"] for entry in one_back["lost"]] == ["0000:01:00.0"]
    assert plan(without([], one_back)) == plan(without([], BEFORE)) == BEFORE, "nothing is lost, and nothing is said"


UNKNOWN_NODE = [
    ([1, None], "packed", "0,1,2,3,6,8,9,10,13,14,15,16,17,19,20,22"),
    ([None, 0], "distributed", "0,1,2,3,4,5,6,7,8,9,11,12,14,16,18,19,21,22,23"),
]


@pytest.mark.parametrize("nodes, strategy, cpus", UNKNOWN_NODE)
def test_a_plan_with_a_card_of_unknown_node_stays(nodes, strategy, cpus):
    """Although its pool has more CPUs of another node than of the one on which the card was counted."""
    topology, options = host(nodes, nodes=2, cores=6, threads=2, affinity=[None, None]), {"strategy": strategy, "cpus": cpus, "min_cpus": 2}
    before = plan(topology, **options)
    after = plan(bound(topology, before), **options)
    assert after["npus"] == before["npus"] and after["repaired"] == before["repaired"]


FAR_THREADS = {"cores": 32, "threads": 4, "numbering": "far"}
A5_NODES = host([0, 0, None, 1, 2, None, None], nodes=3, cores=16, threads=2, numbering="far", family="a5", affinity=[None] * 7)
# the host, options, CPUs that go offline, the CPUs that can be divided then, and the NPUs whose pools change
FAULTS = [
    (host([0, 0, 0, 1, 0, 1], nodes=2, family="310p", **FAR_THREADS), {"strategy": "cluster", "housekeeping": 2, "smt": "threads"}, [32],
     "2-31,34-63,66-95,98-127,130-159,162-191,194-223,226-255", []),
    (A5_NODES, {"min_cpus": 8}, [24, 72], "0-23,25-71,73-95", [0, 5]),
]  # fmt: skip


@pytest.mark.parametrize("topology, options, offline, cpus, changed", FAULTS, ids=["an idle thread of a pool's core", "an unknown node"])
def test_a_fault_changes_little(topology, options, offline, cpus, changed):
    """The cards that get too few take a core; what the other cards are counted on stays."""
    before, faulty = plan(topology, **options), copy.deepcopy(topology)
    switch_off(faulty, set(offline))
    after = plan(bound(faulty, before), **options)
    assert after["cpus"] == cpus
    assert [entry["id"] for entry, old in zip(after["npus"], before["npus"], strict=True) if entry["pool"] != old["pool"]] == changed


def test_all_cards_are_gone():
    before = plan(host(NODES), housekeeping=1)
    after = plan(without(range(8), before), housekeeping=1)
    assert (after["npus"], after["lost"], after["housekeeping"]) == ([], before["npus"], before["housekeeping"])
    assert after["quality"]["idle"] == ""


@pytest.mark.parametrize("lost", [[0], [0, 1]], ids=["the one on node 0", "all"])
def test_poll_threads_keep_their_cpus_when_950s_are_gone(lost):
    topology = host([0, 1], nodes=2, cores=24, family="a5")
    before = plan(topology, strategy="cluster")
    assert before["poll"] and plan(without(lost, before, topology), strategy="cluster")["poll"] == before["poll"]
    assert "poll" not in plan(without(lost, None, topology)) or len(lost) == 1


def test_a_subset_is_asked_for():
    before = plan(host(NODES), npus=[0, 3, 4])
    after = plan(without([3], before), npus=[0, 3, 4])
    assert after["npus"] == [before["npus"][0], {**before["npus"][2], "id": 3}]
    assert after["lost"] == [before["npus"][1]]
    with pytest.raises(ValueError, match="Invalid NPU id 9, total_npus=7"):
        plan(without([3], before), npus=[0, 9])


# CPUs of the host, PCI functions of NPUs, pools in force, options, and why the pools cannot stay
ANEW = [
    ("other options", {}, {}, {}, {"housekeeping": 1}, "housekeeping has changed since"),
    ("another strategy, and CPUs gone", {"online": "0-149,152-191"}, {}, {}, {"strategy": "even_split"}, "strategy has changed since"),
    ("CPUs gone", {"online": "0-146,168-191"}, {}, {}, {}, "3 CPUs of NPU 0 are online, and at least 5 are needed"),
    ("a card that nobody knows", {}, {5: "0000:77:00.0"}, {}, {}, "the plan in force does not know NPU 5 (PCI 0000:77:00.0)"),
    ("pools that overlap", {}, {}, {0: "96-119"}, {}, "the plan in force gives CPUs 96-119 to more than one card"),
]


@pytest.mark.parametrize("cpus, functions, in_force, options, why", [row[1:] for row in ANEW], ids=[row[0] for row in ANEW])
def test_a_host_whose_pools_cannot_stay_is_replanned_with_reason(cpus, functions, in_force, options, why):
    topology = without([3], BEFORE)
    topology["cpus"] |= cpus
    for number, pci in functions.items():
        topology["npus"][number]["pci"] = pci
    for number, pool in in_force.items():
        topology["applied"]["npus"][number]["pool"] = pool
    after = plan(topology, **options)
    (warning,) = [warning for warning in after["warnings"] if "of the plan in force" in warning]
    assert f"keep their slices, but not their pools, which were planned again: {why}" in warning
    assert {(entry["pool"], entry["mems"], why in entry["released"]) for entry in after["lost"]} == {("", "", True)}
    fresh = plan({**topology, "applied": None}, **options)
    assert (pools(after) == pools(fresh)) is not why.endswith("are needed"), "only pools that have lost CPUs change"
    slices = {entry["pci"]: entry["slice"] for entry in topology["applied"]["npus"]}
    assert all(entry["slice"] == slices.get(entry["pci"], "npu-8.slice") for entry in after["npus"])
    assert plan(bound(topology, after), **options) == after, "the second run has nothing to change"


def test_a_kept_pool_whose_cpus_became_isolated_is_replanned():
    topology = without([3], plan(host(NODES), exclude_isolated=True))
    topology["cpus"]["isolated"] = "150-151"
    assert "planned again: CPUs 150-151 of NPU 0 can no longer be used" in plan(topology, exclude_isolated=True)["warnings"][0]


def test_options_that_say_the_same_in_other_words_are_the_same():
    before = plan(host(NODES), housekeeping=1, cpus="0-191", min_cpus=6)
    applied = {**before, "options": {**before["options"], "housekeeping": "1", "npus": [0, 1]}}
    assert plan(without([3], applied), housekeeping="1", cpus="0-95,96-191", min_cpus=6)["lost"]


def test_cards_without_pci_function_are_indistinct_and_replanned():
    topology = host(NODES)
    topology["npus"] = [{**card, "pci": None} for card in topology["npus"]]
    after = plan(without([3], plan(topology), topology))
    assert after["lost"] == after["warnings"] == []


CHIPS = [
    ("duo", lose_chip, (2, 0), ["npu-0.slice"]),
    ("duo", lose_chip, (5, 1), ["npu-5.slice"]),
    ("duo", lose_card, (3,), ["npu-2.slice", "npu-3.slice"]),
    ("a3_640_split", lose_chip, (0, 0), ["npu-0.slice"]),
    ("a3_640_split", lose_card, (5,), ["npu-10.slice", "npu-11.slice"]),
]


@pytest.mark.parametrize("machine, lose, which, gone", CHIPS, ids=[f"{row[0]} {'.'.join(map(str, row[2]))}" for row in CHIPS])
def test_chips_of_cards_as_they_are_gathered(tmp_path, machine, lose, which, gone):
    generate(machine, tmp_path)
    before = plan(gather(Host(str(tmp_path))))
    assert [(entry["kind"], entry["chip"]) for entry in before["npus"][:3]] == [("npu", 0), ("npu", 1), ("npu", 0)]
    (tmp_path / "etc/npu-affinity").mkdir(parents=True)
    (tmp_path / "etc/npu-affinity/plan.json").write_text(json.dumps(before))
    lose(tmp_path, *which)
    topology = gather(Host(str(tmp_path)))
    without_chips = [{key: value for key, value in entry.items() if key != "chip"} for entry in before["npus"]]
    for applied in (topology["applied"], {**before, "npus": without_chips}):
        after = plan({**topology, "applied": applied})
        assert [entry["slice"] for entry in after["lost"]] == gone
        assert [{**entry, "id": None} for entry in after["npus"]] == [
            {**entry, "id": None} for entry in before["npus"] if entry["slice"] not in gone
        ]
        assert [entry["id"] for entry in after["npus"]] == list(range(len(after["npus"])))


def test_cpus_of_kept_pools_that_are_offline():
    topology = without([3], BEFORE)
    topology["cpus"].update(online="0-120,122-143,146-191", offline="121,144-145")
    assert BEFORE["npus"][3]["pool"] == "120-143" and BEFORE["npus"][0]["pool"] == "144-167"
    after = plan(topology)
    first, lost = after["npus"][0], after["lost"][0]
    assert (first["pool"], first["offline"], first["irq"], first["main"]) == ("146-167", "144-145", "146-147", "148-165")
    assert (lost["pool"], lost["offline"]) == ("120,122-143", "121")
    assert [entry["pool"] for entry in after["npus"][1:]] == [entry["pool"] for entry in KEPT[1:]]
    assert after["warnings"][1:] == [
        f"CPUs {cpus} of {name} are offline; it does without them until they are back and the host is bound again."
        for cpus, name in (("144-145", "npu-0.slice"), ("121", "npu-3.slice"))
    ]
    assert plan(bound(topology, after)) == after, "the second run has nothing to change"
    topology["cpus"].update(online="0-191", offline="")
    assert plan(bound(topology, after)) == plan(without([3], BEFORE)), "they are back"
    topology["cpus"].update(online="0-119,144-191", offline="120-143")
    after = plan(topology)
    assert (after["lost"][0]["pool"], after["lost"][0]["offline"]) == ("", "120-143"), "all CPUs of the lost card"
    assert "npu-3.slice are offline; it has no limit of its own" in after["warnings"][1]


def test_workers_restarted_with_a_lost_card_divide_differently():
    after = plan(without([3], plan(host(NODES), bound_by="workers")), bound_by="workers")
    assert [entry["pool"] for entry in after["npus"]] == [entry["pool"] for entry in KEPT]
    assert after["warnings"][1].startswith("Workers that bind themselves and start again divide the CPUs over the 7 NPUs that are left")


def test_gpus_keep_their_slices_as_well():
    topology = host([0, 0, 1, 1], nodes=2, cores=8, family="gpu")
    after = plan(without([1], smallest(plan(topology, min_cpus=4)), topology), min_cpus=4)
    assert [(entry["id"], entry["slice"], entry["irq"], entry["main"]) for entry in after["npus"]] == [
        (0, "gpu-0.slice", "", "0-3"),
        (1, "gpu-2.slice", "", "8-11"),
        (2, "gpu-3.slice", "", "12-15"),
    ]


def test_pools_in_force_that_are_as_good_as_new_ones_stay():
    topology = host([0, 0, 1, 1], nodes=2, cores=8, threads=2, numbering="far", family="a3")
    made = plan(topology)
    changed = bound(topology, made)
    first, second, *_others = changed["applied"]["npus"]
    first["pool"], second["pool"] = second["pool"], first["pool"]
    in_force = pools(changed["applied"])
    assert made["repaired"] and pools(made) != in_force
    assert pools(plan(changed)) == in_force
    assert pools(plan(changed, replan=True)) == pools(plan(changed, min_cpus=4)) == pools(made)
    first["pool"], changed["applied"]["cpus"] = first["pool"].replace("4-7,", "5-7,"), "0-3,5-31"
    assert pools(plan(changed)) == in_force, "a CPU of no pool goes to the pool that has the other thread of its core"


SLICED = host([number // 2 for number in range(16)], cores=80, family="a3")
UNPRINTED = host([0, 0, 2, 3, 3, 3, 1, 1], nodes=4, cores=48, family="310", affinity=[None] * 8)
GPUS = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=32, family="gpu")
FEWER = host([0, 0, 0], nodes=1, cores=20, threads=2, family="gpu")
COUNTED = host([0, 0, 1, 1, None], nodes=2, cores=30, affinity=["0-29", "0-29", "30-59", "30-59", "25,32"])
WITH_A5 = host([0, 1, 2], nodes=3, cores=[7, 7, 5])
WITH_A5["npus"][2]["family"] = "a5"
PAIRS = host([0, 1], nodes=2, cores=8, threads=2)
EVEN = {"strategy": "even_split"}

# host, options, the CPU that goes offline, and pools that differ then, with their numbers of CPUs before and after
GONE = [
    ("outside the set that is divided", SLICED, {"cpus": "0-319"}, 400, {}),
    ("kept for the system", SLICED, {"housekeeping": "0-15"}, 3, {}),
    ("of one pool of an A3", SLICED, {"housekeeping": "0-15"}, 400, {10: (39, 38)}),
    ("of an NPU whose CPUs npu-smi does not print", UNPRINTED, {}, 5, {0: (24, 23)}),
    ("of a GPU", GPUS, {}, 5, {0: (8, 7)}),
    ("of a GPU with fewer cores than others of its node", FEWER, {}, 39, {2: (12, 11)}),
    ("of the node on which a card of one of two nodes was counted", COUNTED, EVEN, 0, {0: (10, 9)}),
    ("of a core that is kept for the system", PAIRS, {"housekeeping": "1-1"}, 1, {}),
    ("of a pool of which the smallest has too few", WITH_A5, {"roles": {"irq": 4}, "min_cpus": 1}, 0, {0: (7, 7), 2: (5, 4)}),
]


@pytest.mark.parametrize("topology, options, cpu, expected", [row[1:] for row in GONE], ids=[row[0] for row in GONE])
def test_a_cpu_that_is_gone_changes_only_pools_in_need(topology, options, cpu, expected):
    before = plan(topology, **options)
    changed = copy.deepcopy(topology)
    switch_off(changed, {cpu})
    after = plan(bound(changed, before), **options)
    counts = {number: (len(expand(pool)), len(expand(pools(after)[number]))) for number, pool in pools(before).items()}
    assert {number: counts[number] for number, pool in pools(before).items() if pools(after)[number] != pool} == expected
    back = pools(plan(bound(topology, after), **options))
    assert back == pools(before) or len(expected) > 1, "only a pool that gave CPUs to another does not get its own back"
