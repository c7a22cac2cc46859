# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner does on hosts that exist, on hosts that are hard, and what it says when it refuses."""

from __future__ import annotations

import copy
import pathlib

import pytest
from planner_checks import defects
from planner_hosts import host, plan, pools

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._base.table import plan_table
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner, strategies
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import in_force

A2 = [6, 4, 6, 4, 0, 2, 0, 2]
A3 = [number // 2 for number in range(16)]
TWO, TWO_A3, TWO_A5 = (host([0, 1], nodes=2, cores=8, family=family) for family in ("a2", "a3", "a5"))
STOCK = {0: "144-167", 1: "96-119", 2: "168-191", 3: "120-143", 4: "0-23", 5: "48-71", 6: "24-47", 7: "72-95"}


def a3(threads=2, numbering="adjacent", **more):
    return host(A3, cores=80 // threads, threads=threads, numbering=numbering, family="a3", **more)


def l40s(**more):
    return host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu", **more)


def roles(entry):
    return " ".join(entry[role] for role in ("irq", "main", "kv", "acl", "release") if role in entry)


def with_ids(topology, *ids):
    return {**topology, "npus": [{**card, "id": number} for card, number in zip(topology["npus"], ids, strict=True)]}


RING = host([0, 0, 1, 1, 2, 2, 3, 3], nodes=4, cores=48)


def test_pools_for_workers_are_as_published_and_defects_reported():
    published, repaired = plan(RING, repair=False), plan(RING)
    made = plan(RING, bound_by="workers")
    assert repaired["repaired"] and pools(made) == pools(published) != pools(repaired)
    assert [entry["irq"] for entry in made["npus"]] == [entry["irq"] for entry in published["npus"]]
    assert made["violations"] == made["repaired"] == []
    assert f"The workers bind themselves, and this is what they do: {published['violations'][0]}" in made["warnings"]
    instead = "use npu_affinity_bound_by: host, with in-process binding off."
    assert made["warnings"][-1] == f"CPUs that the workers divide themselves are not repaired: to have that, {instead}"
    alone = plan(host([0, 1, 2, 3], nodes=4, cores=8), bound_by="workers")
    assert alone["npus"][0]["mems"] == "0-1", "memory of the whole pool: the workers move their pages themselves"
    stock = plan(host(A2), bound_by="workers")
    assert (pools(stock), stock["warnings"]) == (STOCK, [])


BY_RANK = "chooses the pool of a worker by its local rank: rank 0 takes 144-167 (NPU 0), rank 1 takes 96-119 (NPU 1), "
BY_RELEASE = [
    *((release, "") for release in ("0.19.1rc1", "0.23.0", "0.26.0", "0.26.0.post1", "0.26.1", "0.27.1", "1.0.0")),
    *((release, BY_RANK) for release in ("0.24", "0.24.0rc1", "v0.25.1rc1", "0.26.0rc1", "0.27.0rc1", "0.27.0", "0.27.1rc1")),
    ("0.18.0", "vLLM-Ascend 0.18.0 divides the CPUs over the NPUs that have a process."),
]


@pytest.mark.parametrize("release, said", BY_RELEASE, ids=[row[0] for row in BY_RELEASE])
def test_plan_says_which_pools_workers_of_a_release_take(release, said):
    made = plan(host(A2), bound_by="workers", engine_version=release)
    assert pools(made) == STOCK
    ends = "" if said else "each worker takes the pool of its NPU." if release[0] == "0" else "which CPUs the workers of 1.0.0 take."
    assert in_force(host(A2), made, "workers").endswith(ends or "by the same published pools.")
    assert len(made["warnings"]) == bool(said) and all(said in warning for warning in made["warnings"])
    names = {"0.24": "0.24.0", "0.26.0.post1": "0.26.0"}
    assert made["options"]["engine_version"] == names.get(release, release.removeprefix("v"))


def ranks(*npus):
    return ", ".join(f"rank {rank} takes {STOCK[npu]} (NPU {npu})" for rank, npu in enumerate(npus))


OF_WORKLOADS = [
    ([], f": {ranks(*range(8))}."),
    ([("a", range(8))], f": in workload a, {ranks(*range(8))}."),
    (
        [("a", [0, 1]), ("b", [6, 2, 4])],
        f": in workload a, {ranks(0, 1)}; in workload b, {ranks(2, 4, 6)}; on the other NPUs, {ranks(3, 5, 7)}.",
    ),
    ([("a", [0, 1, 2, 3]), ("b", [4, 5, 6])], f": in workload a, {ranks(0, 1, 2, 3)}; in workload b, {ranks(4, 5, 6)}."),
    ([("a", [5]), ("b", [0, 1, 2, 3, 4, 6])], f": in workload b, {ranks(0, 1, 2, 3, 4, 6)}."),
    ([(str(npu), [npu]) for npu in range(8)], None),
]


@pytest.mark.parametrize("workloads, said", OF_WORKLOADS)
def test_local_ranks_of_every_workload_start_at_0(workloads, said):
    named = [{"name": name, "npus": list(npus)} for name, npus in workloads]
    made = plan(host(A2), bound_by="workers", engine_version="0.24.0", workloads=named)
    assert len(made["warnings"]) == (said is not None)
    assert all(f"by its local rank{said} Local ranks of each data-parallel shard" in warning for warning in made["warnings"])
    assert made["npus"] == plan(host(A2), bound_by="workers")["npus"] and "workloads" not in made["options"]


def test_a_single_worker_takes_its_own_pool_in_every_release():
    assert plan(host([0], nodes=2), bound_by="workers", engine_version="0.24.0")["warnings"] == []


def test_a5_is_divided_by_the_rule_of_its_release():
    topology = host([1, 2, 3], nodes=4, cores=32, family="a5")
    assert plan(topology, bound_by="workers", engine_version="0.23.0")["strategy"] == "cluster"
    older = plan(topology, bound_by="workers", engine_version="0.22.1rc1")
    assert pools(older) == pools(plan(topology, strategy="global_slice", repair=False))
    assert older["reason"] == "global_slice is the rule of vLLM-Ascend 0.22.1rc1 for the family a5."
    with pytest.raises(ValueError, match="these will bind nothing on this host: vLLM-Ascend 0.20.2 does not know the family a5"):
        plan(topology, bound_by="workers", engine_version="0.20.2")


@pytest.mark.parametrize("options", [{}, {"bound_by": "workers", "machine": "x86_64"}], ids=str)
def test_a_release_without_effect_is_reported(options):
    topology = host(A2, machine={"architecture": options.pop("machine", "aarch64")})
    made = plan(topology, engine_version="0.24.0", **options)
    assert made["warnings"][0] == "npu_affinity_engine_version has no effect: the workers of this host do not bind themselves."
    assert made["npus"] == plan(topology, **options)["npus"] and "engine_version" not in made["options"]


@pytest.mark.parametrize("machine", [{"architecture": "x86_64"}, {"architecture": "aarch64"}])
def test_workers_that_bind_nothing_change_no_plan(machine):
    topology = {**host([0, 0, 1, 1], nodes=2, family="gpu" if machine["architecture"] == "aarch64" else "a2"), "machine": machine}
    assert plan(topology, bound_by="workers", min_cpus=4) == plan(topology, min_cpus=4)


BESIDE_WORKERS = [
    (RING, {"strategy": "even_split"}, "even_split is not the rule of workers that bind themselves.*, which is topo_affinity on this host"),
    (RING, {"min_cpus": 3}, "npu_affinity_min_cpus: 3 is not the least number of CPUs of workers that bind themselves"),
    (RING, {"roles": {"irq": 4}}, "roles: irq 4, acl 1, release 1 are not the roles of workers that bind themselves"),
    (RING, {"workloads": [{"name": "a", "npus": [0], "roles": {"kv": 2}}]}, "irq 2, acl 1, release 1, kv 2 are not the roles of workers"),
    (RING, {"cpus": "0-47"}, "these will bind nothing on this host: NPU 2.*conflict with NUMA affinity.*; use npu_affinity_bound_by: host"),
    (
        host([0, 1], family="a5", nodes=2, cores=16),
        {},
        "these will bind nothing on this host: .*insufficient CPU clusters.*; use npu_affinity_bound_by",
    ),
    (RING, {"bound_by": "nobody"}, "bound_by: expected one of host, workers"),
    (RING, {"engine_version": 0.2}, "npu_affinity_engine_version: got 0.2, and the first release .*; write .* '0.20' with quotes"),
    (RING, {"engine_version": "latest"}, "npu_affinity_engine_version: expected a release of vLLM-Ascend such as 0.24.0 .*; got 'latest'"),
]


@pytest.mark.parametrize("topology, options, sentence", BESIDE_WORKERS)
def test_what_is_refused_beside_workers(topology, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(topology, **{"bound_by": "workers", **options})


FAR_A3 = host([4, 4, 4, 4, 6, 6, 6, 6, 2, 2, 2, 2, 0, 0, 0, 0], cores=40, threads=2, family="a3")
SWAPPED_A2 = host([1, 0], nodes=2, cores=16)


@pytest.mark.parametrize("topology, published", [(FAR_A3, "global_slice"), (SWAPPED_A2, "topo_affinity")], ids=["A3", "A2"])
def test_auto_takes_near_cpus_if_the_published_ones_are_remote(topology, published):
    remote, near = plan(topology, strategy=published), plan(topology)
    assert (remote["quality"]["local"], near["quality"]["local"]) == (0.0, 1.0)
    assert (near["strategy"], near["violations"], near["warnings"]) == (published, [], [])
    assert near["reason"].endswith(
        ", but 0% of the CPUs would be local to their card; instead the cores near each card were divided evenly, which gives 100%."
    )
    assert near["repaired"][0].startswith(f"Published {published}: 0% of the CPUs would be local to their card. Instead the cores near")
    assert pools(plan(topology, npus=[1])) == {1: pools(near)[1]}
    assert plan(topology, repair=False)["quality"]["local"] == plan(topology, bound_by="workers")["quality"]["local"] == 0.0
    assert pools(plan(topology, bound_by="workers")) == pools(remote)


def test_auto_keeps_remote_cpus_where_near_ones_are_too_few():
    topology = host([0, 1], nodes=2, cores=[4, 28], family="a3")
    assert pools(plan(topology)) == {0: "0-15", 1: "16-31"}
    made = plan(topology, min_cpus=2)
    assert pools(made) == {0: "0-15", 1: "16-31"}
    assert made["reason"].endswith("; a division with 100% local CPUs would shrink the smallest pool from 16 to 4 CPUs.")
    assert made["repaired"] == []


def test_auto_borrows_cores_where_near_nodes_alone_shrink_a_pool():
    made = plan(FAR_A3, cpus="0-319")
    assert {len(expand(pool)) for pool in pools(made).values()} == {20}
    assert [made["npus"][number]["pool"] for number in (0, 4, 8, 12)] == ["80-99", "240-259", "160-179", "0-19"]
    assert (made["quality"]["local"], made["quality"]["own_node"], made["quality"]["smallest"]) == (0.5, 0.5, 20)
    assert made["reason"] == (
        "global_slice is the rule for the family a3, but 25% of the CPUs would be local to their card; instead cards with too few "
        "near CPUs take whole cores of the nearest nodes that can spare them, which gives 50%; a division with 65% local CPUs would shrink "
        "the smallest pool from 20 to 12 CPUs."
    )
    assert made["warnings"] == [
        "global_slice gives NPUs 0-7 remote CPUs: 160 of 160 in these pools.",
        "NPUs 0-7 (8 of 16) have no CPU of their own NUMA nodes 4, 6: only CPUs 0-319 may be divided. Allow others with cpus, or keep "
        "fewer with housekeeping.",
    ]
    assert pools(plan(FAR_A3, cpus="0-319", npus=[5])) == {5: pools(made)[5]}


@pytest.mark.parametrize("options", [{"strategy": "global_slice"}, {"bound_by": "workers"}], ids=str)
def test_published_pools_are_kept_with_a_warning_that_counts(options):
    made = plan(FAR_A3, cpus="0-319", **options)
    assert pools(made) == {number: f"{20 * number}-{20 * number + 19}" for number in range(16)}
    assert (made["quality"]["local"], made["repaired"][:-1]) == (0.25, [])
    assert [warning for warning in made["warnings"] if "own NUMA" in warning or "remote" in warning] == [
        "global_slice gives NPUs 0-7, 12-15 remote CPUs: 240 of 240 in these pools.",
        "NPUs 0-7 (8 of 16) have no CPU of their own NUMA nodes 4, 6: only CPUs 0-319 may be divided. Allow others with cpus, or keep "
        "fewer with housekeeping.",
        "NPUs 12-15 (4 of 16) have no CPU of their own NUMA node 0: the CPUs there are in other pools.",
    ]


def test_repairing_slices_keeps_the_smallest_within_whole_cores():
    topology = host([0] * 5 + [1] * 3, nodes=2, cores=32, threads=2, numbering="far", family="a3")
    made = plan(topology)
    assert (made["quality"]["smallest"], made["quality"]["balance"], made["quality"]["local"]) == (16, 0, 0.875)
    assert made["repaired"][1] == (
        "Published global_slice: the same holds for NPUs 1-3, 5-7. Instead cards with too few near CPUs take whole cores of the "
        "nearest nodes that can spare them, 16 each."
    )
    assert defects(topology, made) == []


def test_a_stock_a2_keeps_what_is_published():
    made = plan(host(A2))
    assert pools(made) == STOCK
    assert made["npus"][0] == {
        "kind": "npu",
        "id": 0,
        "card": 0,
        "chip": 0,
        "phy_id": None,
        "pci": "0000:01:00.0",
        "pool": "144-167",
        "irq": "144-145",
        "main": "146-165",
        "acl": "166",
        "release": "167",
        "mems": "6",
        "memory_nodes": "6-7",
        "slice": "npu-0.slice",
    }
    assert {key: made[key] for key in ("schema", "strategy", "requested", "reason", "cpus", "housekeeping")} == {
        "schema": 1,
        "strategy": "topo_affinity",
        "requested": "auto",
        "reason": "topo_affinity is the rule for the family a2.",
        "cpus": "0-191",
        "housekeeping": "",
    }
    assert made["quality"] == {
        "disjoint": True,
        "whole_cores": True,
        "local": 1.0,
        "own_node": 0.5,
        "remote": 0,
        "balance": 0,
        "smallest": 24,
        "idle": "",
        "nearest": True,
        "smallest_possible": 24,
        "evenness": 0,
        "idle_near": "",
        "optimal": True,
        "gap": {},
    }
    assert made["repaired"] == made["warnings"] == made["lost"] == made["violations"] == []
    assert made["options"] == {
        "strategy": "auto",
        "cpus": "",
        "housekeeping": "",
        "npus": None,
        "smt": "cores",
        "min_cpus": 5,
        "repair": True,
        "roles": {"irq": 2, "acl": 1, "release": 1},
        "exclude_isolated": False,
        "memory": "wide",
        "visible_npus": None,
    }


def test_a3_without_smt_keeps_its_slices_and_roles():
    made = plan(a3(threads=1))
    assert pools(made) == {number: f"{40 * number}-{40 * number + 39}" for number in range(16)}
    assert roles(made["npus"][0]) == "0-1 2-37 38 39"
    assert made["repaired"] == []


def test_a3_with_adjacent_siblings_keeps_slices_but_splits_roles():
    made = plan(a3())
    assert pools(made) == {number: f"{40 * number}-{40 * number + 39}" for number in range(16)}
    assert roles(made["npus"][0]) == "0,2 1,3-36,38 37 39"
    assert made["repaired"] == [
        "Published roles: CPUs for irq, acl and release of NPUs 0-15 are threads of the same cores. "
        "Instead each role has cores of its own, for NPU 0 irq 0,2, acl 37 and release 39."
    ]
    assert plan(a3(), smt="threads")["npus"][0]["irq"] == "0-1"


def test_a3_with_distant_siblings_is_divided_by_cores():
    made = plan(a3(numbering="far"))
    assert made["strategy"] == "global_slice"
    assert made["npus"][3]["pool"] == "60-79,380-399"
    assert made["repaired"][0].startswith("Published global_slice: NPUs 0, 8 run on threads of the same cores, CPUs 0-39,320-359.")
    assert "NPU 0 has 0-19,320-339" in made["repaired"][0]
    assert made["quality"]["local"] == 1.0


# What the published rules do wrong, on the smallest host that shows it: topology, pools, and what the report says.
MENDED = [
    (
        "one NPU on every node: each also takes the next node",
        host([0, 1, 2, 3], nodes=4, cores=8),
        {0: "0-7", 1: "8-15", 2: "16-23", 3: "24-31"},
        ["NPUs 0, 3 share CPUs 0-7. Instead NPU 0 has 0-7, NPU 3 has 24-31."],
    ),
    (
        "pairs on adjacent nodes of four",
        host([0, 0, 1, 1, 3], nodes=4, cores=12),
        {0: "0-5", 1: "6-11", 2: "12-17", 3: "18-23", 4: "24-47"},
        ["NPUs 0, 4 share CPUs 0-11.", "NPUs 1-2 share CPUs 12-23."],
    ),
    (
        "node ids with gaps: the next node is another than counted",
        host([0, 2, 4, 6], nodes=[0, 2, 4, 6], cores=8),
        {0: "0-7", 1: "8-15", 2: "16-23", 3: "24-31"},
        ["NPUs 0, 3 share CPUs 0-7"],
    ),
    (
        "the remainder goes to the last of a group",
        host([0, 0, 0], nodes=1, cores=20),
        {0: "0-6", 1: "7-13", 2: "14-19"},
        ["NPUs 0-2 of NUMA node 0 have pools of 6 to 8 CPUs. Instead NPU 0 has 0-6, NPU 1 has 7-13, NPU 2 has 14-19."],
    ),
    (
        "halves of a sorted list are the siblings of each other",
        host([0, 0], nodes=2, cores=8, threads=2, numbering="far"),
        {0: "0-7,16-23", 1: "8-15,24-31"},
        ["NPUs 0-1 run on threads of the same cores, CPUs 0-31."],
    ),
    ("logic ids with gaps", with_ids(TWO_A3, 0, 4), {0: "0-7", 4: "8-15"}, ["it fails: Invalid NPU id 4, total_npus=2."]),
    (
        "an offline CPU",
        host([0, 1], nodes=2, cores=8, cpus={"online": "0-5,7-15", "offline": "6", "siblings": []}),
        {0: "0-5,7", 1: "8-15"},
        ["it fails: CPUs 6 are offline"],
    ),
    (
        "an NPU of which npu-smi prints nothing",
        host([0, 1], nodes=2, cores=8, affinity=["0-7", None]),
        {0: "0-7", 1: "8-15"},
        ["npu-smi prints no CPUs for NPU 1. Instead those of the kernel's NUMA nodes were taken."],
    ),
    (
        "npu-smi contradicts the kernel",
        host([0, 2], nodes=4, cores=8, affinity=["16-23", "0-7"]),
        {0: "0-15", 1: "16-31"},
        ["npu-smi prints CPUs 16-23 for NPU 0, but the kernel has it on NUMA node 0 (0-7). Instead NPU 0 has 0-15."],
    ),
    (
        "an A5 on node 0, which belongs to the poll threads",
        host([0, 1], nodes=2, cores=24, family="a5"),
        {0: "0-23", 1: "24-47"},
        ["it binds nothing: [cpu_bind_ascend_950] insufficient CPU clusters. numa=0, clusters=0, npus=[0]."],
    ),
    ("an A5 with SMT4", host([1], nodes=2, cores=12, threads=4, family="a5"), {0: "0-95"}, ["unsupported Thread(s) per core: 4"]),
    ("nodes without cards go to the nearest", host([0, 3], nodes=4, cores=8, affinity=[None, ""]), {0: "0-15", 1: "16-31"}, []),
    (
        "a node without cards between two equally near is shared",
        host([0, 1, 1], nodes=3, cores=[8, 16, 12], nodes_per_socket=3, affinity=[None, "", ""]),
        {0: "0-7,24-27", 1: "8-19", 2: "20-23,28-35"},
        [],
    ),
    (
        "shares of caches: left-over cores to the lowest ids",
        host([0, 0, 0], nodes=1, cores=10, threads=2, numbering="far", caches=2),
        {0: "0-3,10-13", 1: "4-6,14-16", 2: "7-9,17-19"},
        [],
    ),
]


@pytest.mark.parametrize("topology, expected, told", [row[1:] for row in MENDED], ids=[row[0] for row in MENDED])
def test_what_is_published_is_mended(topology, expected, told):
    made = plan(topology)
    assert pools(made) == expected
    assert made["repaired"]
    for part in told:
        assert any(part in sentence for sentence in made["repaired"]), made["repaired"]
    assert defects(topology, made) == []


@pytest.mark.parametrize(
    "strategy, nearer",
    [("topo_affinity", "even_split takes no others"), ("global_slice", "topo_affinity takes near nodes, even_split the card's own alone")],
)
def test_a_published_plan_that_holds_is_kept_wherever_it_lies(strategy, nearer):
    made = plan(host([0, 0, 1, 1], nodes=2, cores=[12, 16]), strategy=strategy)
    assert pools(made) == {0: "0-6", 1: "7-13", 2: "14-20", 3: "21-27"}
    assert made["repaired"] == []
    assert made["npus"][1]["mems"] == "0-1"
    assert made["warnings"] == [f"{strategy} gives NPU 1 remote CPUs: 2 of 7 in these pools; {nearer}."]
    assert made["quality"]["local"] == 0.929


def test_without_any_affinity_topo_affinity_slices_the_host():
    made = plan(host([None, None], nodes=2, cores=8, affinity=[None, None]))
    assert pools(made) == {0: "0-7", 1: "8-15"}
    assert made["strategy"] == "global_slice"
    assert made["reason"] == "topo_affinity is the rule for the family a2, but npu-smi printed no affinity, which leaves global_slice."
    assert made["warnings"] == [
        "NPU topo affinity not found. action: fallback to global-slice CPU binding.",
        "Neither the kernel nor the vendor's tool tells the NUMA node of NPUs 0-1, so it is unknown whether the CPUs of a pool are near.",
    ]


@pytest.mark.parametrize(("family", "architecture"), [("a2", "aarch64"), ("a5", "aarch64"), ("a5", "x86_64"), ("310p", "x86_64")])
def test_cpus_of_the_first_node_for_all_without_one_are_a_guess(family, architecture):
    topology = host([None] * 4, nodes=4, cores=16, family=family, affinity=["0-15"] * 4, machine={"architecture": architecture})
    made = plan(topology)
    assert pools(made) == {0: "0-15", 1: "16-31", 2: "32-47", 3: "48-63"}
    assert [entry["memory_nodes"] for entry in made["npus"]] == [""] * 4
    assert any("tells the NUMA node of NPUs 0-3" in warning for warning in made["warnings"])


def test_where_npu_smi_fails_the_kernel_knows_the_nodes():
    made = plan(host(A2, affinity=[None] * 8))
    assert pools(made) == STOCK
    assert made["strategy"] == "topo_affinity"
    assert made["repaired"] == [
        "Published topo_affinity: npu-smi prints no CPUs for NPUs 0-7. Instead those of the kernel's NUMA nodes were taken."
    ]
    assert pools(plan(host(A2, affinity=[None] * 8), repair=False))[0] == "0-23"


EVEN = [
    ("two sockets with siblings far apart", l40s(), {}, {0: "0-23,192-215", 3: "72-95,264-287", 4: "96-119,288-311"}),
    ("the same by number", l40s(), {"smt": "threads"}, {0: "0-47", 2: "192-239", 4: "96-143"}),
    ("nodes without cards stay idle", host(A2), {"strategy": "even_split"}, {0: "144-155", 2: "156-167", 5: "48-59"}),
    ("left-over cores to the lowest ids", host([0] * 5, nodes=1, cores=96, family="gpu"), {}, {0: "0-19", 1: "20-38", 4: "77-95"}),
    ("a reserved thread takes its core", l40s(), {"housekeeping": "192-192"}, {0: "1-24,193-216", 3: "73-95,265-287"}),
    ("one thread of each core is allowed", l40s(), {"cpus": "0-15,96-127"}, {0: "0-3", 3: "12-15", 4: "96-103"}),
    ("one thread of some cores", l40s(), {"cpus": "0-95,200-207,96-103"}, {0: "0-9,16-29,200-201", 3: "14-15,74-95,206-207"}),
    (
        "one thread of the first cores",
        host([0] * 7, nodes=1, cores=24, threads=2, numbering="far", family="gpu"),
        {"cpus": "4-47"},
        {0: "4-6,24,28-30", 5: "19-21,43-45", 6: "22-23,26-27,46-47"},
    ),
    (
        "as many CPUs as are needed from few whole cores",
        host([0] * 3, nodes=1, cores=6, threads=2, family="gpu"),
        {"cpus": "1-4,7,10-11", "min_cpus": 2},
        {0: "1-3", 1: "10-11", 2: "4,7"},
    ),
    ("a hidden NPU has too few", TWO, {"cpus": "0-10", "npus": [0], "min_cpus": 5, "strategy": "even_split"}, {0: "0-7"}),
    ("no card has a node: all over all", host([None] * 3, nodes=2, cores=8, family="gpu"), {}, {0: "0-5", 1: "6-10", 2: "11-15"}),
]


@pytest.mark.parametrize("topology, options, expected", [row[1:] for row in EVEN], ids=[row[0] for row in EVEN])
def test_equal_shares(topology, options, expected):
    made = plan(topology, **{"min_cpus": 1, **options})
    assert {number: pool for number, pool in pools(made).items() if number in expected} == expected
    assert made["strategy"] == "even_split"


def test_gpus_have_slices_of_their_own_and_no_roles():
    entry = plan(l40s())["npus"][5]
    assert (entry["slice"], entry["main"], roles(entry)) == ("gpu-5.slice", entry["pool"], f" {entry['pool']}  ")


def test_an_a5_has_no_roles_and_eight_cores():
    made = plan(host([1, 1], nodes=2, cores=24, threads=2, family="a5"), strategy="cluster")
    assert pools(made) == {0: "48-63", 1: "64-79"}
    assert made["npus"][0]["main"] == "48-63"
    assert made["npus"][0]["irq"] == ""
    assert made["repaired"] == []


SLICES = {"strategy": "global_slice", "repair": False}
AS_PUBLISHED = [
    ("A5 without node 0", host([1, 3], nodes=[1, 3], cores=8, family="a5"), {"repair": False}, {0: "0-7", 1: "8-15"}),
    ("A5 with node 0, which is for poll threads", host([0, 3], nodes=[0, 3], cores=8, family="a5"), {"repair": False}, {}),
    ("A5 with one node", host([0], nodes=1, cores=24, family="a5"), {"repair": False}, {}),
    ("the smallest slices", TWO_A3, {**SLICES, "cpus": "0-9"}, {0: "0-4", 1: "5-9"}),
    ("without interrupt CPUs", TWO_A5, {**SLICES, "cpus": "0-5"}, {0: "0-2", 1: "3-5"}),
]


@pytest.mark.parametrize("topology, options, expected", [row[1:] for row in AS_PUBLISHED], ids=[row[0] for row in AS_PUBLISHED])
def test_pools_of_published_rules(topology, options, expected):
    assert pools(plan(topology, **options)) == expected


def test_a5_poll_threads_get_what_the_pools_leave_of_node_0():
    published = plan(host([1, 1], nodes=2, cores=24, threads=2, family="a5"), strategy="cluster")
    assert published["poll"] == "1-47"
    repaired = plan(host([0, 1], nodes=2, cores=24, threads=2, family="a5"), strategy="cluster")
    taken = set(expand(",".join(entry["pool"] for entry in repaired["npus"])))
    assert expand(repaired["poll"]) == sorted(set(range(1, 48)) - taken)
    full = plan(host([0, 1], nodes=2, cores=8, family="a5"), strategy="even_split")
    assert full["poll"] == "" and any("No CPU is left for the poll threads" in warning for warning in full["warnings"])
    assert "poll" not in plan(host([0, 1], nodes=2, cores=24))


X86 = {"machine": {"architecture": "x86_64"}}
AUTO = [
    # the machine, and the pools of auto: where the published rule binds nothing, or leaves CPUs near the NPUs idle
    ("all on one node of four", host([1] * 8, nodes=4, cores=48), [(24, "topo_affinity")] * 8),
    ("node ids 0 and 2", host([0, 2], nodes=[0, 2], cores=24), ["0-23", "24-47"]),
    (
        "half of each core printed",
        host([0, 1], nodes=2, cores=8, threads=2, numbering="far", affinity=["0-7", "8-15"]),
        ["0-7,16-23", "8-15,24-31"],
    ),
    ("A5 with eight cores for each", host([1, 1], nodes=2, cores=24, threads=2, family="a5"), [(48, "cluster")] * 2),
    ("A5 off its clusters", host([0, 0, 1, 1], nodes=2, cores=32, family="a5"), ["0-15", "16-31", "32-47", "48-63"]),
    ("A5 of which no node is known", host([None] * 8, nodes=4, cores=80, family="a5"), [(40, "cluster")] * 8),
    ("A5 on x86", host([0] * 4 + [1] * 4, nodes=2, cores=96, threads=2, numbering="far", family="a5", **X86), [(48, "even_split")] * 8),
    ("310P on x86 keep to their socket", host([0, 0], nodes=2, cores=16, nodes_per_socket=1, family="310p", **X86), ["0-7", "8-15"]),
    ("one NPU on x86 has its socket", host([5], nodes=8, cores=8, nodes_per_socket=4, **X86), ["32-63"]),
    ("a set that omits a node, A2", host([0, 1], nodes=2, cores=24), {"cpus": "0-23"}, ["0-11", "12-23"]),
    ("a set that omits a node, A3", host([0, 1], nodes=2, cores=24, family="a3"), {"cpus": "0-23"}, ["0-11", "12-23"]),
    ("a set that omits a node, GPU", host([0, 1], nodes=2, cores=24, family="gpu"), {"cpus": "0-23"}, ["0-11", "12-23"]),
]


@pytest.mark.parametrize("row", [row[1:] for row in AUTO], ids=[row[0] for row in AUTO])
def test_auto_divides_the_cores_near_the_cards(row):
    topology, *options, expected = row
    options = options[0] if options else {}
    made = plan(topology, **options)
    assert [
        (len(expand(entry["pool"])), made["strategy"]) if isinstance(wanted, tuple) else entry["pool"]
        for entry, wanted in zip(made["npus"], expected, strict=True)
    ] == expected
    assert defects(topology, made, **options) == []


def test_an_unknown_node_binds_no_memory_and_has_no_share():
    made = plan(host([None] * 8, nodes=4, cores=80, family="a5"))
    assert {entry["memory_nodes"] for entry in made["npus"]} == {""}
    assert "share of local CPUs not known" in " ".join(" ".join(plan_table(made, host([None] * 8))).split())
    assert "divided evenly, because no NUMA node is known, 40 each" in made["repaired"][0]


def test_a_host_without_npus_has_no_quality_line():
    made = plan(host([], nodes=2, cores=8))
    assert not any(line.startswith("quality") for line in plan_table(made, host([], nodes=2, cores=8)))


def test_named_strategies_name_the_idle_cpus_that_they_leave():
    made = plan(host([1] * 8, nodes=4, cores=48), strategy="topo_affinity")
    assert (made["quality"]["smallest"], made["quality"]["smallest_possible"], made["quality"]["optimal"]) == (12, 24, False)
    assert made["warnings"] == [
        "topo_affinity leaves 96 CPUs idle that are local to NPUs 0-7: 0-47,144-191. npu_affinity_strategy: auto divides them."
    ]


def test_an_affinity_cpu_outside_all_nodes_stops_published_rules():
    topology = host([0], nodes=1, cores=8)
    topology["numa"][0]["cpus"] = "0-5"
    with pytest.raises(ValueError, match=r"CPU 6 of the affinity is on no NUMA node \(0 are known\)"):
        plan(topology, repair=False)


def mixed():
    topology = host([0, 1], nodes=2, cores=12)
    topology["npus"] += host([0, 1], nodes=2, cores=12, family="gpu")["npus"]
    return topology


def test_npus_and_gpus_of_one_host_share_its_nodes_evenly():
    made = plan(mixed())
    assert [(entry["slice"], entry["pool"], entry["irq"]) for entry in made["npus"]] == [
        ("npu-0.slice", "0-5", "0-1"),
        ("gpu-0.slice", "6-11", ""),
        ("npu-1.slice", "12-17", "12-13"),
        ("gpu-1.slice", "18-23", ""),
    ]
    assert made["strategy"] == "even_split"
    assert "families a2 and gpu" in made["reason"]
    assert [entry["slice"] for entry in plan(mixed(), npus=[1])["npus"]] == ["npu-1.slice", "gpu-1.slice"]
    with pytest.raises(ValueError, match="strategy: topo_affinity cannot divide CPUs over NPUs 0-1 and GPUs 0-1 at once; use auto"):
        plan(mixed(), strategy="topo_affinity")


HOUSEKEEPING = [
    ("nothing", TWO, "", "", "0-7"),
    ("zero cores", TWO, 0, "", "0-7"),
    ("a cpulist", TWO, "0-1,8", "0-1,8", "2-7"),
    ("a number of cores of every node", TWO, 2, "0-1,8-9", "2-7"),
    ("the number as text", TWO, "2", "0-1,8-9", "2-7"),
    ("a list of CPUs", TWO, [3], "3", "0-2,4-7"),
    ("the CPU 0", TWO, "0", "0", "1-7"),
    ("whole cores", host([0, 1], nodes=2, cores=8, threads=2, numbering="far"), 1, "0,8,16,24", "1-7,17-23"),
    ("a thread takes its core", host([0, 1], nodes=2, cores=8, threads=2, numbering="far"), "17-17", "1,17", "0,2-7,16,18-23"),
    ("a node without CPUs", host([0, 0], nodes=3, cores=[16, 0, 8]), 1, "0,16", "1-8"),
    ("a core of every node at least", host([0, 0], nodes=3, cores=[16, 0, 8]), "follow", "0,16", "1-8"),
    ("or two", TWO, "follow:2", "0-1,8-9", "2-7"),
]


@pytest.mark.parametrize("topology, value, kept, first", [row[1:] for row in HOUSEKEEPING], ids=[row[0] for row in HOUSEKEEPING])
def test_what_is_kept_for_the_system(topology, value, kept, first):
    made = plan(topology, strategy="even_split", housekeeping=value)
    assert made["housekeeping"] == kept and made.get("follow", False) == str(value).startswith("follow")
    assert made["npus"][0]["pool"] == first
    assert defects(topology, made, housekeeping=kept) == []


def test_with_threads_a_reserved_thread_leaves_its_sibling():
    made = plan(host([0], nodes=1, cores=4, threads=2, numbering="far"), smt="threads", housekeeping="1-1")
    assert made["npus"][0]["pool"] == "0,2-7"
    assert plan(host([0], nodes=1, cores=8), housekeeping="0-1,99")["warnings"] == ["npu_affinity_housekeeping: 99 are not online."]


def test_a_plan_does_not_move_when_pods_come_and_go():
    topology = host([0, 1], nodes=2, cores=8)
    empty = plan(topology)
    for exclusive in ({"pod/worker": "2-3", "other": {"c": "12"}}, {"pod/worker": "0-15"}):
        assert plan({**topology, "kubelet": {"policy": "static", "exclusive": exclusive, "warnings": []}}) == empty


def test_isolated_cpus_are_used_and_pointed_out():
    topology = host([0, 1], nodes=2, cores=8)
    topology["cpus"]["isolated"] = "6-7"
    made = plan(topology)
    assert made["npus"][0]["pool"] == "0-7"
    assert made["warnings"][0].startswith("CPUs 6-7 are isolated from the scheduler")
    assert plan(topology, cpus="0-5,8-15", strategy="even_split")["warnings"] == []


def test_a_workqueue_kept_off_its_cpu_by_the_kernel_is_reported():
    topology = host([0, 1], nodes=2, cores=8)
    topology["cpus"]["workqueues"] = "1-15"
    (warning,) = plan(topology)["warnings"]
    assert warning.startswith(
        "The first IRQ CPU of NPU 0 is isolated (isolcpus, nohz_full): the kernel keeps the driver's send workqueue off"
    )
    topology["cpus"]["workqueues"] = "0-15"
    assert plan(topology)["warnings"] == []


def test_only_the_cpus_asked_for_are_divided():
    made = plan(host([0, 1], nodes=2, cores=8), cpus="2-7,10-99")
    assert pools(made) == {0: "2-7", 1: "10-15"}
    assert made["cpus"] == "2-7,10-15"
    assert made["warnings"] == ["npu_affinity_cpus: 16-99 are not online and were left out."]


def test_cards_of_another_socket_share_what_is_allowed():
    made = plan(host(A2), cpus="144-191")
    assert {len(expand(entry["pool"])) for entry in made["npus"]} == {6}
    assert plan(host(A2), cpus="144-191", npus=[0])["npus"] == made["npus"][:1]
    assert any("only CPUs 144-191 may be divided" in warning for warning in made["warnings"])


MEMORY = [
    ("its own node", host([0, 1], nodes=2, cores=8), {}, ["0", "1"]),
    ("a node without CPUs takes from the nearest", host([1, 3], nodes=4, cores=[8, 0, 8, 0]), {}, ["0", "2"]),
    ("both nodes of a pool", host([0], nodes=2, cores=8), {}, ["0-1"]),
    ("a node without memory", host([0, 1], nodes=4, cores=8), {1: 0}, ["0,2", "3"]),
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


def test_a_host_without_numa_has_no_memory_nodes():
    made = plan(host([None, None], nodes=1, cores=16, numa=[], affinity=[None, None]))
    assert [(entry["pool"], entry["mems"]) for entry in made["npus"]] == [("0-7", ""), ("8-15", "")]


def test_distance_keys_may_be_numbers_or_texts_or_be_missing():
    expected = plan(host([0, 3], nodes=4, cores=8, affinity=["", ""]))["npus"]
    numbers = host([0, 3], nodes=4, cores=8, affinity=["", ""])
    for node in numbers["numa"]:
        node["distances"] = {int(other): value for other, value in node["distances"].items()}
    assert plan(numbers)["npus"] == expected
    for node in numbers["numa"]:
        del node["distances"]
    assert plan(numbers)["npus"] == expected


def test_a_host_without_cards_has_an_empty_plan():
    made = plan(host([], nodes=2, cores=8), cpus="100-200")
    assert made["npus"] == []
    assert made["reason"] == "No NPU and no GPU of the host is known."


def test_small_pools_share_cpus_between_roles_if_allowed():
    found = {size: roles(plan(host([0], nodes=1, cores=size), min_cpus=1)["npus"][0]) for size in range(1, 6)}
    assert found == {1: "0 0 0 0", 2: "0 1 1 1", 3: "0 1 2 2", 4: "0 1 2 3", 5: "0-1 2 3 4"}


def test_small_pools_without_interrupts_keep_no_cpu_for_them():
    boards = {size: host([0], nodes=1, cores=size) for size in range(1, 5)}
    for board in boards.values():
        board["npus"][0]["pci"] = None
    found = {size: roles(plan(board, min_cpus=1)["npus"][0]) for size, board in boards.items()}
    assert found == {1: " 0 0 0", 2: " 0 1 1", 3: " 0 1 2", 4: " 0-1 2 3"}


ROLES = [
    ("five cores and more", host([0], nodes=1, cores=5, threads=2), "0,2 1,3-6,8 7 9"),
    ("three cores: the irq CPUs share one", host([0], nodes=1, cores=3, threads=2), "0-1 2,4 3 5"),
    ("two cores: as published", host([0], nodes=1, cores=2, threads=4), "0-1 2-5 6 7"),
    ("siblings far apart: as published", host([0], nodes=1, cores=8, threads=2, numbering="far"), "0-1 2-13 14 15"),
    ("far apart in a small pool", host([0], nodes=1, cores=3, threads=2, numbering="far"), "0,3 1-2 4 5"),
]


@pytest.mark.parametrize("topology, expected", [row[1:] for row in ROLES], ids=[row[0] for row in ROLES])
def test_roles_keep_to_cores_of_their_own(topology, expected):
    assert roles(plan(topology)["npus"][0]) == expected
    assert defects(topology, plan(topology)) == []


def test_the_published_result_keeps_the_printed_order():
    topology = host([None], nodes=2, cores=8, affinity=["8-15,0-7"])
    entry = plan(topology, repair=False)["npus"][0]
    assert {key: entry[key] for key in ("pool", "irq", "main", "acl", "release", "mems")} == {
        "pool": "8-15,0-7",
        "irq": "8-9",
        "main": "10-15,0-5",
        "acl": "6",
        "release": "7",
        "mems": "1",
    }


def test_the_published_result_lists_what_is_wrong_with_it():
    topology = host([0, 1, 2, 3], nodes=4, cores=8)
    made = plan(topology, repair=False)
    assert pools(made) == {0: "0-15", 1: "8-23", 2: "16-31", 3: "0-7,24-31"}
    assert made["violations"] == [
        "NPUs 0, 3 share CPUs 0-7.",
        "NPUs 0-1 share CPUs 8-15.",
        "NPUs 1-2 share CPUs 16-23.",
        "NPUs 2-3 share CPUs 24-31.",
    ]
    assert not made["quality"]["disjoint"]
    assert plan(topology, repair=False, npus=[2])["violations"] == made["violations"]


REFUSED = [
    (
        {"strategy": "best"},
        "npu_affinity_strategy: expected one of auto, cluster, distributed, even_split, global_slice, packed, topo_affinity; got 'best'",
    ),
    ({"smt": "siblings"}, "npu_affinity_smt: expected one of cores, threads; got 'siblings'"),
    ({"cpus": "0-7,x"}, "npu_affinity_cpus: 'x' in '0-7,x' is not a CPU number or range; expected e.g. 0-3,8"),
    (
        {"cpus": {"online": "0"}},
        "npu_affinity_cpus: expected a cpulist such as 0-3,8, a CPU number or a list of CPU numbers; got {'online': '0'}",
    ),
    ({"cpus": ["0"]}, "npu_affinity_cpus: '0' is not a CPU number between 0 and 65535"),
    ({"cpus": "200-300"}, "npu_affinity_cpus: none of 200-300 is online; online are 0-15"),
    ({"housekeeping": "0-15"}, "npu_affinity_housekeeping: 0-15 reserves all CPUs (0-15); reserve fewer"),
    ({"housekeeping": 500}, "npu_affinity_housekeeping: 500 reserves all CPUs (0-15); reserve fewer"),
    (
        {"housekeeping": "two"},
        "npu_affinity_housekeeping: 'two' in 'two' is not a CPU number or range; expected e.g. 0-3,8, or a number of cores per NUMA node, "
        "such as 2, or follow",
    ),
    ({"housekeeping": "follow:0"}, "npu_affinity_housekeeping: cores after follow: expected a whole number of 1 or more; got '0'"),
    ({"housekeeping": "follow:1-2"}, "npu_affinity_housekeeping: cores after follow: expected a whole number of 1 or more; got '1-2'"),
    ({"housekeeping": -1}, "npu_affinity_housekeeping: expected a whole number of 0 or more; got -1"),
    ({"housekeeping": True}, "npu_affinity_housekeeping: expected a whole number of 0 or more; got True"),
    ({"npus": 3}, "npu_affinity_npus: expected a list of logic ids such as [0, 1]; got 3"),
    ({"npus": ["a"]}, "npu_affinity_npus: expected a whole number of 0 or more; got 'a'"),
    ({"npus": [9]}, "Invalid NPU id 9, total_npus=2. The option npus has it; the host has NPUs 0-1"),
    ({"memory": "near"}, "npu_affinity_memory: expected one of wide, strict, none; got 'near'"),
    ({"min_cpus": 0}, "npu_affinity_min_cpus: expected a whole number of 1 or more; got 0"),
    ({"min_cpus": 2.5}, "npu_affinity_min_cpus: expected a whole number of 1 or more; got 2.5"),
    ({"repair": "maybe"}, "npu_affinity_repair: expected true or false; got 'maybe'"),
    ({"replan": None}, "npu_affinity_replan: expected true or false; got None"),
    (
        {"min_cpus": 9, "strategy": "even_split"},
        "NUMA node 0 has 8 usable CPUs for NPU 0: 0-7. NPU 0 would get 8 where at least 9 are needed, 9 in all. Allow more CPUs with "
        "npu_affinity_cpus, keep fewer with npu_affinity_housekeeping, or lower npu_affinity_min_cpus",
    ),
    (
        {"repair": False, "cpus": "0-8", "strategy": "global_slice"},
        "Insufficient CPUs for binding with CPU role reservations: total_allowed=9, total_npus=2, min_per_npu=4 (<5). "
        "Need at least 10 CPUs in cpuset.",
    ),
    (
        {"repair": False, "cpus": "8-15"},
        "NPU 0: CPUs available in 'Cpus_allowed_list' conflict with NUMA affinity. Its affinity is 0-7; none of it can be divided.",
    ),
    (
        {"repair": False, "cpus": "0-1,8-9", "npus": [1]},
        "NPU 1 has 2 CPUs. The number of CPUs is insufficient. Each NPU requires at least 5 CPUs.",
    ),
]


@pytest.mark.parametrize("options, sentence", REFUSED, ids=[sentence[:50] for _options, sentence in REFUSED])
def test_a_refusal_says_what_was_found_and_what_to_do(options, sentence):
    with pytest.raises(ValueError) as raised:
        plan(host([0, 1], nodes=2, cores=8), **options)
    assert str(raised.value) == sentence


BROKEN = [
    ("no mapping", [], {}, "expected the fact npu_affinity_topology of npu.affinity.topology_facts, with cpus, numa and npus; got list"),
    ("another fact", {"facts": 1}, {}, "got dict with facts"),
    ("no CPU", host([0], nodes=1, cores=8, cpus={"online": ""}), {}, "no online CPU to divide"),
    ("a node that is not a cpulist", host([0], nodes=1, cores=8, numa=[{"id": 0, "cpus": "a"}]), {}, "cpus of NUMA node 0: 'a' in 'a'"),
    ("an affinity that is not a cpulist", host([None], nodes=1, cores=8, affinity=["xx-xx"]), {}, "affinity of NPU 0: 'xx-xx' in 'xx-xx'"),
    ("two NPUs with one id", host([0, 0], nodes=1, npus=host([0], nodes=1)["npus"] * 2), {}, "NPU 0 occurs twice in the topology"),
    ("cores too large", host([0, 0], nodes=1, cores=3, threads=4), {}, "12 usable CPUs in 3 cores for NPUs 0-1: 0-11. NPU 1 would get 4"),
    ("slices of an A3", TWO_A3, {**SLICES, "cpus": "0-8"}, "min_per_npu=4 (<5). Need at least 10 CPUs"),
    ("slices of an A5", TWO_A5, {**SLICES, "cpus": "0-4"}, "min_per_npu=2 (<3). Need at least 6 CPUs"),
]


@pytest.mark.parametrize("topology, options, part", [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_topology_that_cannot_be_planned_is_refused_in_words(topology, options, part):
    with pytest.raises(ValueError) as raised:
        plan(topology, **options)
    assert part in str(raised.value)


def test_texts_from_a_command_line_are_understood():
    topology = host([0, 1], nodes=2, cores=8)
    assert plan(topology, repair="False", replan="no", min_cpus="5", npus="1", housekeeping="1") == plan(
        topology, repair=False, replan=False, min_cpus=5, npus=[1], housekeeping=1
    )


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


PREFILL = {"name": "prefill", "npus": [0], "roles": {"irq": 4}}
DECODE = {"name": "decode", "npus": [4], "roles": {"kv": 2}}
PUBLISHED_ROLES = ["144-145 146-165 166 167", "0-1 2-21 22 23"]
WITH_KV = ["144-145 146-163 164-165 166 167", "0-1 2-19 20-21 22 23"]
KV = [
    # options, the roles irq, main, kv, acl and release of NPU 0 and of NPU 4
    ("none", {"roles": {"kv": 0}}, PUBLISHED_ROLES),
    ("for all", {"roles": {"kv": 2}}, WITH_KV),
    ("next to other sizes", {"roles": {"irq": 1, "kv": 3, "acl": 2}}, ["144 145-161 162-164 165-166 167", "0 1-17 18-20 21-22 23"]),
    ("for a workload", {"workloads": [DECODE]}, [PUBLISHED_ROLES[0], WITH_KV[1]]),
    ("for two workloads", {"workloads": [DECODE, PREFILL]}, ["144-147 148-165 166 167", "0-1 2-19 20-21 22 23"]),
    (
        "for a workload by PCI address, besides those of the host",
        {"roles": {"irq": 3}, "workloads": [{"name": "a", "npus": ["05:00.0"], "roles": {"kv": 1, "acl": 2}}]},
        ["144-146 147-165 166 167", "0-2 3-19 20 21-22 23"],
    ),
    ("not for a workload", {"roles": {"kv": 2}, "workloads": [{**DECODE, "roles": {"kv": 0}}]}, [WITH_KV[0], PUBLISHED_ROLES[1]]),
    ("of a workload without roles", {"workloads": [{"name": "a", "npus": [4]}]}, PUBLISHED_ROLES),
    ("of an NPU that is not there", {"workloads": [{**DECODE, "npus": [77, "x"]}]}, PUBLISHED_ROLES),
]


@pytest.mark.parametrize("options, expected", [row[1:] for row in KV], ids=[row[0] for row in KV])
def test_kv_transfer_gets_cpus_between_main_and_acl_on_request(options, expected):
    made = plan(host(A2), **options)
    assert pools(made) == STOCK
    assert [roles(made["npus"][number]) for number in (0, 4)] == expected
    assert [("kv" in made["npus"][number]) for number in (0, 4)] == [text.count(" ") == 4 for text in expected]


def test_what_is_not_asked_for_leaves_no_trace():
    assert plan(host(A2), roles={"kv": 0}, workloads=[{"name": "a", "npus": [0], "roles": None}]) == plan(host(A2))


WRONG_ROLES = [
    ({"roles": {"kv": -1}}, "roles.kv: expected a whole number of 0 or more"),
    (
        {"roles": {"kv": 2}, "repair": False},
        "roles: irq 2, acl 1, release 1, kv 2 is not what is published, which is irq 2, acl 1, release 1, and",
    ),
    ({"workloads": [DECODE], "repair": False}, "kv 2 is not what is published"),
    ({"workloads": [{**DECODE, "roles": {"main": 2}}]}, "npu_affinity_workloads: decode: roles: main cannot be sized"),
    ({"workloads": [{**DECODE, "roles": {"irq": 0}}]}, "npu_affinity_workloads: decode: roles.irq: expected a whole number of 1 or more"),
    ({"workloads": "decode"}, "npu_affinity_workloads: expected a list of workloads"),
    (
        {"workloads": [DECODE, {"name": "prefill", "npus": [4, 5], "roles": {"kv": 1}}]},
        "decode and prefill both have NPU 4, with roles irq 2, acl 1, release 1, kv 2 and irq 2, acl 1, release 1, kv 1; give both",
    ),
]


@pytest.mark.parametrize("options, sentence", WRONG_ROLES)
def test_roles_that_cannot_be_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(host(A2), **options)


def test_a_pool_has_room_for_the_roles_of_its_workload():
    topology = host([0, 0], nodes=1, cores=14)
    made = plan(topology, workloads=[{"name": "a", "npus": [0], "roles": {"kv": 2}}])
    assert [roles(entry) for entry in made["npus"]] == ["0-1 2 3-4 5 6", "7-8 9-11 12 13"]
    with pytest.raises(ValueError, match="irq 2, acl 1, release 1, kv 4 and one for main"):
        plan(topology, workloads=[{"name": "a", "npus": [0], "roles": {"kv": 4}}])


def test_slices_of_a_host_with_two_nodes_come_near():
    topology = host([1] * 4 + [0] * 4, nodes=2, cores=40, threads=2, family="a3")
    uneven = host([1, 1, 1, 1, 1, 0, 0, 0], nodes=2, cores=40, threads=2, family="a3")
    assert [plan(each, strategy="global_slice")["quality"]["local"] for each in (topology, uneven)] == [0.0, 0.125]
    assert [plan(each)["quality"]["local"] for each in (topology, uneven)] == [1.0, 0.875]
    assert plan(uneven)["quality"]["smallest"] == 20
    assert plan(uneven)["npus"][4]["pool"] == "60-79"


BORROWED = [
    (
        "only from cores that are large enough",
        host([0, 1], nodes=2, cores=[6, 1], threads=2, numbering="far", family="310p"),
        {"cpus": "0,3-5,7-10,12-13"},
        {0: "0,4,7-9", 1: "3,5,10,12-13"},
    ),
    (
        "although near CPUs are as many as the published rule gives",
        host([1, 0, 1, 1, 1], nodes=2, cores=[6, 1], family="a3"),
        {"housekeeping": "6-6", "min_cpus": 1},
        {0: "2", 1: "0-1", 4: "5"},
    ),
    (
        "and keep to eight cores",
        host([0, 0, 1], nodes=2, cores=[4, 20], family="a5"),
        {"strategy": "cluster"},
        {0: "0-3,18", 1: "19-23", 2: "4-11"},
    ),
    ("two nodes lend to one", host([0] * 3 + [1, 2], nodes=3, cores=[9, 7, 12]), {}, {2: "15,24-27", 3: "9-13", 4: "16-23"}),
    ("by the distances", host([0, 0, 1, 2], nodes=3, cores=[6, 12, 12], nodes_per_socket=2), {}, {1: "5,14-17"}),
    ("cards of a family that borrows only as auto", host([0, 0, 1], nodes=2, cores=[6, 12], family="gpu"), {}, {0: "0-4", 1: "5,14-17"}),
]


@pytest.mark.parametrize("topology, options, expected", [row[1:] for row in BORROWED], ids=[row[0] for row in BORROWED])
def test_cards_with_too_few_near_cpus_borrow_cores(topology, options, expected):
    made = plan(topology, **options)
    assert {number: pool for number, pool in pools(made).items() if number in expected} == expected
    assert defects(topology, made, **options) == []


def test_a_node_equally_far_from_several_serves_the_neediest():
    made = plan(host([0, 0, 0, 2], nodes=4, cores=24, nodes_per_socket=4, family="a3"))
    assert [len(expand(entry["pool"])) for entry in made["npus"]] == [24, 24, 24, 24]


def test_cards_whose_node_is_reserved_take_cores_of_others():
    topology, options = host([0, 1], nodes=2, cores=8), {"housekeeping": "8-15", "min_cpus": 4}
    made = plan(topology, **options)
    assert pools(made) == {0: "0-3", 1: "4-7"}
    assert defects(topology, made, **options) == []
    assert plan(topology, npus=[0], **options)["npus"] == made["npus"][:1]


def test_advice_is_given_only_where_it_helps():
    made = plan(host([0, 0, 0, 1], nodes=2, cores=[8, 24]))
    assert made["warnings"][0] == "topo_affinity gives NPUs 1-2 remote CPUs: 16 of 16 in these pools."
    with pytest.raises(ValueError, match="NPU 2 would get 2 where at least 5 .*; strategy topo_affinity also uses CPUs of other nodes$"):
        plan(host([0, 0, 0, 1], nodes=2, cores=[8, 24]), strategy="even_split")


def test_a_named_rule_without_neighbours_never_borrows():
    topology = host([0, 0, 1], nodes=2, cores=[6, 12], family="gpu")
    with pytest.raises(ValueError, match="NUMA node 0 has 6 usable CPUs for GPUs 0-1: 0-5"):
        plan(topology, strategy="even_split")
