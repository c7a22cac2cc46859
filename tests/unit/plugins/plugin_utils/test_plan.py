# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner does on hosts that exist, on hosts that are hard, and what it says when it refuses.

``plans.yml`` has a list for each plan; its comment says what these lists hold.
"""

import copy
import pathlib

import pytest
import yaml
from planner_checks import defects
from planner_hosts import bound, host, plan, pools

from ansible_collections.npu.affinity.plugins.module_utils._base.table import plan_table
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner, strategies
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import in_force

FILE = yaml.safe_load(pathlib.Path(__file__).with_name("plans.yml").read_text())
CARDS = [6, 4, 6, 4, 0, 2, 0, 2]
A2, TWO, RING, CROSSED = (host(**FILE["machines"][name]) for name in ("A2", "TWO", "RING", "CROSSED"))
STOCK = {0: "144-167", 1: "96-119", 2: "168-191", 3: "120-143", 4: "0-23", 5: "48-71", 6: "24-47", 7: "72-95"}
X86 = {"machine": {"architecture": "x86_64"}}


def machine(given):
    """Return a host by its name, or by the arguments of ``host`` with ids of the cards and other values of ``cpus``."""
    described = dict(FILE["machines"][given] if isinstance(given, str) else given)
    ids, update = described.pop("ids", ()), described.pop("update", {})
    topology = host(**described)
    topology["cpus"].update(update)
    for npu, number in zip(topology["npus"], ids, strict=False):
        npu["id"] = number
    return topology


def roles(entry):
    return " ".join(entry[role] for role in ("irq", "main", "kv", "acl", "release") if role in entry)


def shown(made, more):
    """Return a plan as the file has it: its pools, what else is compared, and what it reports."""
    ids = [entry["id"] for entry in made["npus"]]
    starts = [""] * len(ids) if ids == list(range(len(ids))) else [f"{number}:" for number in ids]
    text = " ".join([made["strategy"], *(start + entry["pool"] for start, entry in zip(starts, made["npus"], strict=True))])
    values = {key: made.get(key) for key in more}
    values |= {key: [entry[name] for entry in made["npus"]] for key, name in (("mems", "mems"), ("memory", "memory_nodes")) if key in more}
    if "roles" in more:
        values["roles"] = {entry["id"]: roles(entry) for entry in made["npus"] if entry["id"] in more["roles"]}
    if "quality" in more:
        values["quality"] = {key: made["quality"][key] for key in more["quality"]}
    return text, values, [*made["repaired"], *made["warnings"], *made["violations"]]


@pytest.mark.parametrize("case", FILE["plans"], ids=[case[0] for case in FILE["plans"]])
def test_a_plan_is_as_in_the_file(case):
    _name, described, options, expected, *starts = case
    topology, more = machine(described), starts.pop(0) if starts and isinstance(starts[0], dict) else {}
    made = plan(topology, **copy.deepcopy(options))
    text, actual, sentences = shown(made, more)
    assert (text, actual) == (expected, more)
    assert len(sentences) == len(starts), sentences
    assert [start for start, sentence in zip(starts, sentences, strict=True) if start not in sentence] == [], sentences
    if not {"bound_by", "repair", "npus", "workloads"} & options.keys() and "memory" not in more:  # which is not known there
        assert defects(topology, made, **{**options, "housekeeping": made["housekeeping"]}) == []


DECODE, PREFILL = {"name": "decode", "npus": [4], "roles": {"kv": 2}}, {"name": "prefill", "npus": [0], "roles": {"irq": 4}}
BY_ADDRESS = {"roles": {"irq": 3}, "workloads": [{"name": "a", "npus": ["05:00.0"], "roles": {"kv": 1, "acl": 2}}]}
PUBLISHED = ["144-145 146-165 166 167", "0-1 2-21 22 23"]
WITH_KV = ["144-145 146-163 164-165 166 167", "0-1 2-19 20-21 22 23"]
KV = [
    # options, the roles irq, main, kv, acl and release of NPU 0 and of NPU 4
    ("none", {"roles": {"kv": 0}}, PUBLISHED),
    ("for all", {"roles": {"kv": 2}}, WITH_KV),
    ("next to other sizes", {"roles": {"irq": 1, "kv": 3, "acl": 2}}, ["144 145-161 162-164 165-166 167", "0 1-17 18-20 21-22 23"]),
    ("for a workload", {"workloads": [DECODE]}, [PUBLISHED[0], WITH_KV[1]]),
    ("for two workloads", {"workloads": [DECODE, PREFILL]}, ["144-147 148-165 166 167", "0-1 2-19 20-21 22 23"]),
    ("for a workload by PCI address, besides those of the host", BY_ADDRESS, ["144-146 147-165 166 167", "0-2 3-19 20 21-22 23"]),
    ("not for a workload", {"roles": {"kv": 2}, "workloads": [{**DECODE, "roles": {"kv": 0}}]}, [WITH_KV[0], PUBLISHED[1]]),
    ("of a workload without roles", {"workloads": [{"name": "a", "npus": [4]}]}, PUBLISHED),
    ("of an NPU that is not there", {"workloads": [{**DECODE, "npus": [77, "x"]}]}, PUBLISHED),
]


@pytest.mark.parametrize("options, expected", [row[1:] for row in KV], ids=[row[0] for row in KV])
def test_kv_transfer_gets_cpus_between_main_and_acl_on_request(options, expected):
    made = plan(A2, **options)
    assert pools(made) == STOCK
    assert [roles(made["npus"][number]) for number in (0, 4)] == expected


def test_a_stock_a2_keeps_what_is_published():
    made = plan(A2)
    assert {key: made[key] for key in FILE["stock"]} == FILE["stock"]
    assert (made["quality"], made["options"]) == (FILE["quality"], FILE["options"])
    assert made["npus"][0] == FILE["first"] and pools(made) == STOCK


BY_RANK = "chooses the pool of a worker by its local rank: rank 0 takes 144-167 (NPU 0), rank 1 takes 96-119 (NPU 1), "
BY_RELEASE = [
    *((release, "") for release in ("0.19.1rc1", "0.23.0", "0.26.0", "0.26.0.post1", "0.26.1", "0.27.1", "1.0.0")),
    *((release, BY_RANK) for release in ("0.24", "0.24.0rc1", "v0.25.1rc1", "0.26.0rc1", "0.27.0rc1", "0.27.0", "0.27.1rc1")),
    ("0.18.0", "vLLM-Ascend 0.18.0 divides the CPUs over the NPUs that have a process."),
]


@pytest.mark.parametrize("release, words", BY_RELEASE, ids=[row[0] for row in BY_RELEASE])
def test_plan_says_which_pools_workers_of_a_release_take(release, words):
    made = plan(A2, bound_by="workers", engine_version=release)
    assert pools(made) == STOCK
    ends = "" if words else "each worker takes the pool of its NPU." if release[0] == "0" else "which CPUs the workers of 1.0.0 take."
    assert in_force(A2, made, "workers").endswith(ends or "by the same published pools.")
    assert len(made["warnings"]) == bool(words) and all(words in warning for warning in made["warnings"])
    names = {"0.24": "0.24.0", "0.26.0.post1": "0.26.0"}
    assert made["options"]["engine_version"] == names.get(release, release.removeprefix("v"))


def ranks(*npus):
    return ", ".join(f"rank {rank} takes {STOCK[npu]} (NPU {npu})" for rank, npu in enumerate(npus))


OTHERS = f"on the other NPUs, {ranks(3, 5, 7)}."
OF_WORKLOADS = [
    ({}, f": {ranks(*range(8))}."),
    ({"a": range(8)}, f": in workload a, {ranks(*range(8))}."),
    ({"a": [0, 1], "b": [6, 2, 4]}, f": in workload a, {ranks(0, 1)}; in workload b, {ranks(2, 4, 6)}; {OTHERS}"),
    ({"a": [0, 1, 2, 3], "b": [4, 5, 6]}, f": in workload a, {ranks(0, 1, 2, 3)}; in workload b, {ranks(4, 5, 6)}."),
    ({"a": [5], "b": [0, 1, 2, 3, 4, 6]}, f": in workload b, {ranks(0, 1, 2, 3, 4, 6)}."),
    ({str(npu): [npu] for npu in range(8)}, None),
]


@pytest.mark.parametrize("workloads, words", OF_WORKLOADS)
def test_local_ranks_of_every_workload_start_at_0(workloads, words):
    settings = [{"name": name, "npus": list(npus)} for name, npus in workloads.items()]
    made = plan(A2, bound_by="workers", engine_version="0.24.0", workloads=settings)
    assert len(made["warnings"]) == (words is not None)
    assert all(f"by its local rank{words} Local ranks of each data-parallel shard" in warning for warning in made["warnings"])
    assert made["npus"] == plan(A2, bound_by="workers")["npus"] and "workloads" not in made["options"]


@pytest.mark.parametrize("options, more", [({}, {}), ({"bound_by": "workers"}, X86)], ids=str)
def test_a_release_without_effect_is_reported(options, more):
    topology = {**A2, **more}
    made = plan(topology, engine_version="0.24.0", **options)
    assert made["warnings"][0] == "npu_affinity_engine_version has no effect: the workers of this host do not bind themselves."
    assert made["npus"] == plan(topology, **options)["npus"] and "engine_version" not in made["options"]


@pytest.mark.parametrize("topology", [host([0, 0, 1, 1], nodes=2, **X86), host([0, 0, 1, 1], nodes=2, family="gpu")], ids=["x86", "GPU"])
def test_workers_that_bind_nothing_change_no_plan(topology):
    assert plan(topology, bound_by="workers", min_cpus=4) == plan(topology, min_cpus=4)


def test_workers_see_some_npus_and_others_can_take_the_same_cpus():
    def seen(topology, numbers):
        return plan(topology, bound_by="workers", visible_npus=numbers)

    parent = {"machine": {"architecture": "aarch64", "cgroup": "v2", "systemd": 255}}
    (slice_of_all,) = binding({**CROSSED, **parent}, seen(CROSSED, [0, 1]), Work(bound_by="workers"))["parents"]
    assert slice_of_all["cpus"] == "0-191", "the other NPUs have workers, too"
    whole = plan(CROSSED, bound_by="workers")
    made = seen(bound(CROSSED, whole), "0-3")
    assert (pools(made), made["lost"]) == ({0: "144-167", 1: "0-23", 2: "168-191", 3: "24-47"}, []), "what is hidden is not lost"
    assert seen(bound(CROSSED, made), [0, 1, 2, 3]) == made
    others = [{**card, "id": number} for number, card in enumerate(card for card in CROSSED["npus"] if card["id"] != 1)]
    after = seen(bound({**CROSSED, "npus": others}, made), [0, 1, 2, 3])
    assert [(entry["slice"], entry["pool"]) for entry in after["npus"]] == [(f"npu-{npu}.slice", pools(made)[npu]) for npu in (0, 2, 3)]
    assert [entry["slice"] for entry in after["lost"]] == ["npu-1.slice"], "what is lost is"
    back = plan(bound(CROSSED, made), bound_by="workers")
    assert (back["npus"], back["lost"]) == (whole["npus"], [])


def test_without_nodes_or_npus_there_is_no_share_or_quality():
    unknown, bare = host([None] * 8, nodes=4, cores=80, family="a5"), host([], nodes=2, cores=8)
    assert "share of local CPUs not known" in " ".join(" ".join(plan_table(plan(unknown), unknown)).split())
    made = plan(bare, cpus="100-200")
    assert (made["npus"], made["reason"]) == ([], "No NPU and no GPU of the host is known.")
    assert not any(line.startswith("quality") for line in plan_table(made, bare))


def test_npus_and_gpus_of_one_host_share_its_nodes_evenly():
    mixed = host([0, 1], nodes=2, cores=12)
    mixed["npus"] += host([0, 1], nodes=2, cores=12, family="gpu")["npus"]
    made = plan(mixed)
    assert [f"{entry['slice']} {roles(entry)}" for entry in made["npus"]] == [
        "npu-0.slice 0-1 2-3 4 5",
        "gpu-0.slice  6-11  ",
        "npu-1.slice 12-13 14-15 16 17",
        "gpu-1.slice  18-23  ",
    ]
    assert made["strategy"] == "even_split" and "families a2 and gpu" in made["reason"]
    assert [entry["slice"] for entry in plan(mixed, npus=[1])["npus"]] == ["npu-1.slice", "gpu-1.slice"]
    with pytest.raises(ValueError, match="strategy: topo_affinity cannot divide CPUs over NPUs 0-1 and GPUs 0-1 at once; use auto"):
        plan(mixed, strategy="topo_affinity")


MEMORY = [
    ("its own node", TWO, {}, ["0", "1"]),
    ("a node without CPUs takes from the nearest", host([1, 3], nodes=4, cores=[8, 0, 8, 0]), {}, ["0", "2"]),
    ("both nodes of a pool", host([0], nodes=2, cores=8), {}, ["0-1"]),
    ("a node without memory", host([0, 1], nodes=4, cores=8), {1: 0}, ["0,2", "3"]),
    ("no node", host([None, None], nodes=1, cores=16, numa=[], affinity=[None, None]), {}, ["", ""]),
]


@pytest.mark.parametrize("topology, memory, expected", [row[1:] for row in MEMORY], ids=[row[0] for row in MEMORY])
def test_memory_nodes_have_memory(topology, memory, expected):
    for node in topology["numa"]:
        node["memory_mib"] = memory.get(node["id"], 1024)
    made = plan(topology)
    assert defects(topology, made) == []
    assert [entry["mems"] for entry in made["npus"]] == expected


FOUR = host([0, 1, 2, 3], nodes=4, cores=8)
PAIRS = [[10, 12, 20, 22], [12, 10, 22, 20], [20, 22, 10, 12], [22, 20, 12, 10]]
SOCKETS = ["0-15", "16-31"]
FAR_PAIRS = [[10, 25, 32, 33], [25, 10, 32, 33], [32, 33, 10, 25], [32, 33, 25, 10]]
HBM = [[10, 12, 20, 20, 17], [12, 10, 20, 20, 17], [20, 20, 10, 12, 30], [20, 20, 12, 10, 30], [17, 17, 30, 30, 10]]
NEAR_HBM = [[10, 14, 20, 20, 11], [14, 10, 20, 20, 13], [20, 20, 10, 14, 30], [20, 20, 14, 10, 30], [11, 13, 30, 30, 10]]
ALLOWED = [
    # distances, sockets, nodes without memory, the memory nodes of NPUs 0 and 2 with wide
    ("two nodes in a socket", PAIRS, SOCKETS, (), ["0-1", "2-3"]),
    ("nodes of a socket that are far apart", FAR_PAIRS, SOCKETS, (), ["0-1", "2-3"]),
    ("a node in a socket", PAIRS, ["0-7", "8-15", "16-23", "24-31"], (), ["0", "2"]),
    ("sockets unknown", PAIRS, [], (), ["0-1", "2-3"]),
    ("sockets unknown, all nodes remote", FAR_PAIRS, [], (), ["0", "2"]),
    ("distances unknown", None, SOCKETS, (), ["0-1", "2-3"]),
    ("nothing known", None, [], (), ["0", "2"]),
    ("a neighbour without memory", PAIRS, SOCKETS, (1,), ["0", "2-3"]),
    ("an own node without memory", PAIRS, SOCKETS, (0,), ["1", "2-3"]),
    ("slow memory of a socket", HBM, SOCKETS, (), ["0-1,4", "2-3"]),
    ("memory near to a socket", NEAR_HBM, SOCKETS, (), ["0-1,4", "2-3"]),
]


@pytest.mark.parametrize("distances, sockets, without, expected", [row[1:] for row in ALLOWED], ids=[row[0] for row in ALLOWED])
def test_wide_memory_is_that_of_the_socket(distances, sockets, without, expected):
    topology = copy.deepcopy(FOUR)
    topology["cpus"]["sockets"] = sockets
    if distances and len(distances) > len(topology["numa"]):
        topology["numa"].append({"id": 4, "cpus": "", "memory_mib": 1024, "distances": {}})
    for node in topology["numa"]:
        node["memory_mib"] = 0 if node["id"] in without else 1024
        node["distances"] = {str(other): distance for other, distance in enumerate(distances[node["id"]])} if distances else {}
    wide, strict, none = (plan(topology, strategy="even_split", memory=memory)["npus"] for memory in ("wide", "strict", "none"))
    assert [wide[npu]["memory_nodes"] for npu in (0, 2)] == expected
    assert [entry["memory_nodes"] for entry in strict] == [entry["mems"] for entry in strict] == [entry["mems"] for entry in wide]
    assert [(entry["mems"], entry["memory_nodes"]) for entry in none] == [(entry["mems"], "") for entry in wide]
    assert defects(topology, {**plan(topology, strategy="even_split"), "npus": wide}) == []


def test_distance_keys_may_be_numbers_or_texts_or_be_missing():
    numbers, expected = host([0, 3], nodes=4, cores=8), plan(host([0, 3], nodes=4, cores=8))["npus"]
    for node in numbers["numa"]:
        node["distances"] = {int(other): value for other, value in node["distances"].items()}
    assert plan(numbers)["npus"] == expected
    for node in numbers["numa"]:
        del node["distances"]
    assert plan(numbers)["npus"] == expected


SMALL = [("0000:01:00.0", ["0 0 0 0", "0 1 1 1", "0 1 2 2", "0 1 2 3", "0-1 2 3 4"]), (None, [" 0 0 0", " 0 1 1", " 0 1 2", " 0-1 2 3"])]


@pytest.mark.parametrize("pci, expected", SMALL, ids=["with interrupts", "without interrupts"])
def test_small_pools_share_cpus_between_roles_if_allowed(pci, expected):
    boards = [host([0], nodes=1, cores=size) for size in range(1, len(expected) + 1)]
    for board in boards:
        board["npus"][0]["pci"] = pci
    assert [roles(plan(board, min_cpus=1)["npus"][0]) for board in boards] == expected


def test_what_is_not_asked_for_leaves_no_trace():
    assert plan(A2, roles={"kv": 0}, workloads=[{"name": "a", "npus": [0], "roles": None}]) == plan(A2)
    assert all("kv" not in entry for entry in plan(A2)["npus"])


WORKERS, SLICES = {"bound_by": "workers"}, {"strategy": "global_slice", "repair": False}
UNEVEN, TWO_A3, TWO_A5 = host([0, 0, 0, 1], nodes=2, cores=[8, 24]), *(host([0, 1], nodes=2, cores=8, family=f) for f in ("a3", "a5"))
WHOLE = "expected a whole number of"
RAW = {"repair": False, "min_cpus": 1}
INSUFFICIENT = "Insufficient CPUs for binding with CPU role reservations: total_allowed="
NO_CORES = "npu_affinity_housekeeping: cores after follow: expected a whole number of 1 or more; got"
# The host, options, and a part of the sentence.
REFUSED = [
    (TWO, {"strategy": "best"}, "npu_affinity_strategy: expected one of auto, cluster, distributed, even_split, global_slice, packed, "),
    (TWO, {"smt": "siblings"}, "npu_affinity_smt: expected one of cores, threads; got 'siblings'$"),
    (TWO, {"cpus": "0-7,x"}, "npu_affinity_cpus: 'x' in '0-7,x' is not a CPU number or range; expected e.g. 0-3,8$"),
    (TWO, {"cpus": {"online": "0"}}, "npu_affinity_cpus: expected a cpulist such as 0-3,8, a CPU number or a list of CPU numbers; got {"),
    (TWO, {"cpus": ["0"]}, "npu_affinity_cpus: '0' is not a CPU number between 0 and 65535$"),
    (TWO, {"cpus": [1, 70000]}, "npu_affinity_cpus: 70000 is not a CPU number between 0 and 65535$"),
    (TWO, {"cpus": -1}, "npu_affinity_cpus: -1 is not a CPU number between 0 and 65535$"),
    (TWO, {"cpus": True}, "npu_affinity_cpus: expected a cpulist such as 0-3,8, a CPU number or a list of CPU numbers; got True$"),
    (TWO, {"cpus": "3-1"}, "npu_affinity_cpus: range '3-1' in '3-1' runs backwards; write 1-3$"),
    (TWO, {"cpus": "200-300"}, "npu_affinity_cpus: none of 200-300 is online; online are 0-15$"),
    (TWO, {"housekeeping": "0-15"}, r"npu_affinity_housekeeping: 0-15 reserves all CPUs \(0-15\); reserve fewer$"),
    (TWO, {"housekeeping": 500}, r"npu_affinity_housekeeping: 500 reserves all CPUs \(0-15\); reserve fewer$"),
    (TWO, {"housekeeping": "two"}, "npu_affinity_housekeeping: 'two' in .*, or a number of cores per NUMA node, such as 2, or follow$"),
    (TWO, {"housekeeping": "follow:0"}, f"{NO_CORES} '0'$"),
    (TWO, {"housekeeping": "follow:1-2"}, f"{NO_CORES} '1-2'$"),
    (TWO, {"housekeeping": -1}, f"npu_affinity_housekeeping: {WHOLE} 0 or more; got -1$"),
    (TWO, {"housekeeping": True}, f"npu_affinity_housekeeping: {WHOLE} 0 or more; got True$"),
    (TWO, {"npus": 3}, r"npu_affinity_npus: expected a list of logic ids such as \[0, 1\]; got 3$"),
    (TWO, {"npus": ["a"]}, f"npu_affinity_npus: {WHOLE} 0 or more; got 'a'$"),
    (TWO, {"npus": [9]}, "Invalid NPU id 9, total_npus=2. The option npus has it; the host has NPUs 0-1$"),
    (TWO, {"memory": "near"}, "npu_affinity_memory: expected one of wide, strict, none; got 'near'$"),
    (TWO, {"min_cpus": 0}, f"npu_affinity_min_cpus: {WHOLE} 1 or more; got 0$"),
    (TWO, {"min_cpus": 2.5}, f"npu_affinity_min_cpus: {WHOLE} 1 or more; got 2.5$"),
    (TWO, {"repair": "maybe"}, "npu_affinity_repair: expected true or false; got 'maybe'$"),
    (TWO, {"replan": None}, "npu_affinity_replan: expected true or false; got None$"),
    (TWO, {"min_cpus": 9, "strategy": "even_split"}, "NUMA node 0 has 8 usable CPUs for NPU 0: 0-7. .* at least 9 are needed, 9 in"),
    (TWO, {"repair": False, "cpus": "8-15"}, "NPU 0: CPUs available in 'Cpus_allowed_list' conflict .* is 0-7; none of it can be divi"),
    (TWO, {"repair": False, "cpus": "0-1,8-9", "npus": [1]}, "NPU 1 has 2 CPUs. .* insufficient. Each NPU requires at least 5"),
    (TWO, {**SLICES, "cpus": "0-8"}, rf"{INSUFFICIENT}9, total_npus=2, min_per_npu=4 \(<5\). Need at least 10 CPUs in cpuset.$"),
    (TWO_A3, {**SLICES, "cpus": "0-8"}, rf"{INSUFFICIENT}9, total_npus=2, min_per_npu=4 \(<5\). Need at least 10 CPUs"),
    (TWO_A5, {**SLICES, "cpus": "0-4"}, rf"{INSUFFICIENT}5, total_npus=2, min_per_npu=2 \(<3\). Need at least 6 CPUs"),
    (UNEVEN, {"strategy": "even_split"}, "NPU 2 would get 2 where at least 5 .*; strategy topo_affinity also uses CPUs of other nodes$"),
    (host([0, 0, 1], nodes=2, cores=[6, 12], family="gpu"), {"strategy": "even_split"}, "NUMA node 0 has 6 usable CPUs for GPUs 0-1: 0-5"),
    (host([1, 0], nodes=2, cores=4, threads=2, numbering="far"), {"strategy": "packed", "cpus": "0,8", **RAW}, "requested=4, available=2"),
    (host([0, 0], nodes=1, cores=3, threads=4), {}, "12 usable CPUs in 3 cores for NPUs 0-1: 0-11. NPU 1 would get 4"),
    (host([0, 0], nodes=1, npus=TWO["npus"][:1] * 2), {}, r"NPU 0 occurs twice in the topology \(0000:01:00.0 and 0000:01:00.0\)"),
    (host([0], nodes=1, cores=8, cpus={"online": ""}), {}, "The topology has no online CPU to divide"),
    (host([0], nodes=1, cores=8, numa=[{"id": 0, "cpus": "a"}]), {}, "cpus of NUMA node 0: 'a' in 'a'"),
    (host([0], nodes=1, cores=8, numa=[{"id": 0, "cpus": "0-5"}]), {"repair": False}, "CPU 6 of the affinity is on no NUMA node .0 are"),
    (host([None], nodes=1, cores=8, affinity=["xx-xx"]), {}, "affinity of NPU 0: 'xx-xx' in 'xx-xx'"),
    ([], {}, "topology: expected the fact npu_affinity_topology of npu.affinity.topology_facts, with cpus, numa and npus; got list"),
    ({"facts": 1}, {}, "got dict with facts"),
    (A2, {"roles": {"kv": -1}}, f"npu_affinity_roles.kv: {WHOLE} 0 or more"),
    (A2, {"roles": {"kv": 2}, "repair": False}, "irq 2, .*, kv 2 is not what is published, which is irq 2, acl 1, release 1, and"),
    (A2, {"workloads": [DECODE], "repair": False}, "kv 2 is not what is published"),
    (A2, {"workloads": [{**DECODE, "roles": {"main": 2}}]}, "npu_affinity_workloads: decode: roles: main cannot be sized"),
    (A2, {"workloads": [{**DECODE, "roles": {"irq": 0}}]}, f"npu_affinity_workloads: decode: roles.irq: {WHOLE} 1 or more"),
    (A2, {"workloads": "decode"}, "npu_affinity_workloads: expected a list of workloads"),
    (
        A2,
        {"workloads": [DECODE, {**DECODE, "name": "b", "roles": {"kv": 1}}]},
        "decode and b both have NPU 4, with roles irq .* kv 2 and .*",
    ),
    (host([0, 0], nodes=1, cores=14), {"workloads": [{**DECODE, "npus": [0], "roles": {"kv": 4}}]}, "release 1, kv 4 and one for main"),
    (RING, {**WORKERS, "strategy": "even_split"}, "even_split is not the rule of workers that bind .*, which is topo_affinity on"),
    (RING, {**WORKERS, "min_cpus": 3}, "npu_affinity_min_cpus: 3 is not the least number of CPUs of workers that bind themselves"),
    (RING, {**WORKERS, "roles": {"irq": 4}}, "roles: irq 4, acl 1, release 1 are not the roles of workers that bind themselves"),
    (RING, {**WORKERS, "workloads": [{**DECODE, "npus": [0]}]}, "irq 2, acl 1, release 1, kv 2 are not the roles of workers"),
    (RING, {**WORKERS, "cpus": "0-47"}, "will bind nothing on this host: NPU 2.*conflict .*; use npu_affinity_bound_by: host"),
    (TWO_A5, WORKERS, "these will bind nothing on this host: .*insufficient CPU clusters.*; use npu_affinity_bound_by"),
    (TWO_A5, {**WORKERS, "engine_version": "0.20.2"}, "will bind nothing .*: vLLM-Ascend 0.20.2 does not know the family a5"),
    (RING, {"bound_by": "nobody"}, "npu_affinity_bound_by: expected one of host, workers"),
    (RING, {**WORKERS, "engine_version": 0.2}, "engine_version: got 0.2, and the first release .*; write .* '0.20' with quotes"),
    (RING, {**WORKERS, "engine_version": "latest"}, "npu_affinity_engine_version: expected a release .* such as 0.24.0 .*; got 'latest'"),
    (CROSSED, {**WORKERS, "visible_npus": [9]}, "npu_affinity_visible_npus: the host has no NPU 9; it has NPUs 0-7$"),
    (CROSSED, {**WORKERS, "visible_npus": ["x"]}, f"npu_affinity_visible_npus: {WHOLE} 0 or more; got 'x'$"),
    (CROSSED, {**WORKERS, "visible_npus": 5}, "npu_affinity_visible_npus: expected a list of logic ids"),
    (CROSSED, {**WORKERS, "visible_npus": [0, 1], "npus": [2]}, "Invalid NPU id 2"),
    (CROSSED, {"visible_npus": [0]}, "npu_affinity_visible_npus: .* use npu_affinity_bound_by: workers$"),
    ({**CROSSED, **X86}, {**WORKERS, "visible_npus": [0]}, "workers of this host do not bind themselves: .*x86_64"),
]


@pytest.mark.parametrize("topology, options, sentence", REFUSED, ids=[sentence[:60] for _topology, _options, sentence in REFUSED])
def test_a_refusal_says_what_was_found_and_what_to_do(topology, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(topology, **options)


def test_texts_from_a_command_line_are_understood():
    meant = {"repair": False, "replan": False, "min_cpus": 5, "npus": [1], "housekeeping": 1}
    assert plan(TWO, repair="on", replan="off") == plan(TWO, repair="yes", replan="0") == plan(TWO)
    assert plan(TWO, repair="False", replan="no", min_cpus="5", npus="1", housekeeping="1") == plan(TWO, **meant)


def test_a_new_file_is_a_new_strategy():
    files = pathlib.Path(strategies.__file__).parent.glob("[a-z]*.py")
    names = ["cluster", "distributed", "even_split", "global_slice", "packed", "topo_affinity"]
    assert sorted(planner.STRATEGIES) == sorted(file.stem for file in files) == names


WRONG = [
    ("an overlap", {"pool": "0-8"}, "overlap"),
    ("a CPU that does not exist", {"pool": "0-7,99"}, "must not be used"),
    ("too small", {"pool": "0-3"}, "has 4 CPUs"),
    ("unequal", {"pool": "0-5"}, "cores"),
    ("half a core", {"pool": "0-6"}, "a core is in two pools"),
    ("roles that leave CPUs over", {"main": "2-4"}, "do not fill"),
    ("memory that is not there", {"mems": "7"}, "memory nodes"),
    ("memory that nobody has", {"memory_nodes": "0,7"}, "may use memory nodes"),
    ("not its own memory", {"memory_nodes": ""}, "may use memory nodes"),
    ("another slice", {"slice": "npu-9.slice"}, "slices"),
]


@pytest.mark.parametrize("change, part", [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_the_independent_look_sees_what_is_wrong(change, part):
    topology = host([0, 0], nodes=1, cores=8, threads=2)
    made = plan(topology)
    assert defects(topology, made) == []
    made["npus"][0].update(change)
    if part == "a core is in two pools":
        made["npus"][1]["pool"] = "7-15"
    assert any(part in defect for defect in defects(topology, made))
