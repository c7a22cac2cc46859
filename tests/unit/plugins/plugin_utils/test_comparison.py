# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools of any origin measured, and strategies next to each other."""

import copy
from pathlib import Path

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import normalize
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import compare, measured
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.simulator.generate import generate

REPOSITORY = Path(__file__).resolve().parents[4]
RING = host([0, 0, 1, 1], nodes=2, cores=12, nodes_per_socket=1)
"""Two nodes of twelve CPUs with two NPUs each, in two sockets at distance 20."""
SMT = host([0, 1], nodes=2, cores=8, threads=2, numbering="far", caches=4)
"""Siblings c and c+16, caches of four cores; both nodes in one socket, distance 12."""
STOCK = host([6, 4, 6, 4, 0, 2, 0, 2])
USE_ADJACENT_NODES = host([0, 1, 3], nodes=4, cores=6, nodes_per_socket=1)
"""NPUs on adjacent nodes, whose published pools overlap; nobody is on node 2."""
IN_TURNS = host([0, 1, 0, 1], nodes=2, cores=12)
BOTH = host([0, 1], nodes=2, cores=8, family="gpu")
BOTH["npus"] += host([0, 1], nodes=2, cores=8)["npus"]

PERFECT = {"disjoint": True, "whole_cores": True, "local": 1.0, "own_node": 1.0, "remote": 0, "balance": 0, "smallest": 6, "idle": ""}
PERFECT |= {"overlap": "", "split_cores": 0, "distance": 10.0, "caches": 1.0, "unusable": "", "missing": []}
NEXT_TO_BEST = ("nearest", "smallest_possible", "evenness", "idle_near", "optimal", "gap")
"""What test_plan_quality.py looks at."""
NOWHERE = {"local": None, "own_node": None, "remote": None}


def far(local, remote, distance):
    return {"local": local, "own_node": local, "remote": remote, "distance": distance}


PARTED = {"whole_cores": False, "split_cores": 16, "smallest": 16, "caches": 4.0}
UNUSABLE = {"unusable": "40", "balance": 1, "local": 0.96, "own_node": 0.96, "remote": 1}
ONCE = {"disjoint": False, "overlap": "0-5", "idle": "6-11,18-23"}
LEFT = {"caches": 2.0, "idle": "3-11,15-23", "missing": ["NPU 1", "NPU 2", "NPU 3"]}
HALF = {"whole_cores": False, "split_cores": 1, "balance": 1, "smallest": 7, "idle": "4-7,12-15,19-23,28-31"}
POOLS = [
    ("each its own half of its node", RING, {0: "0-5", 1: "6-11", 2: "12-17", 3: "18-23"}, {}),
    ("keys of JSON and lists of CPUs", RING, {"0": [0, 1, 2, 3, 4, 5], "1": "6-11", "npu-2": "12-17", "npu-3": "18-23"}, {}),
    ("two share CPUs", RING, {0: "0-7", 1: "4-11", 2: "12-17", 3: "18-23"}, {"disjoint": False, "overlap": "4-7", "balance": 2}),
    ("three share CPUs", RING, {0: "0-5", 1: "0-5", 2: "0-5", 3: "12-17"}, {**far(0.75, 6, 12.5), **ONCE}),
    ("far from its node", RING, {0: "0-5", 1: "12-17", 2: "6-11", 3: "18-23"}, far(0.5, 12, 15.0)),
    ("one across both nodes, one has an empty pool, two have none", RING, {0: "0-2,12-14", 1: ""}, {**far(0.5, 3, 15.0), **LEFT}),
    ("no pools", SMT, {}, {"smallest": 0, "idle": "0-31", "distance": None, "caches": None, "missing": ["NPU 0", "NPU 1"], **NOWHERE}),
    ("a CPU that is not there is local to nobody", RING, {0: "6-11", 1: "0-5", 2: "12-17", 3: "18-23,40"}, UNUSABLE),
    ("whole cores in half of the caches", SMT, {0: "0-3,16-19", 1: "8-11,24-27"}, {"smallest": 8, "idle": "4-7,12-15,20-23,28-31"}),
    ("slices by number: each has a thread of all cores", SMT, {0: "0-15", 1: "16-31"}, {**far(0.5, 16, 11.0), **PARTED}),
    ("half a core", SMT, {0: "0-3,16-18", 1: "8-11,24-27"}, HALF),
]


@pytest.mark.parametrize("topology, pools, expected", [row[1:] for row in POOLS], ids=[row[0] for row in POOLS])
def test_measures(topology, pools, expected):
    values = measured(pools, topology)
    assert [card["id"] for card in values.pop("npus")] == [npu["id"] for npu in topology["npus"]]
    assert {key: value for key, value in values.items() if key not in NEXT_TO_BEST} == {**PERFECT, **expected}


def test_measures_of_each_card():
    cards = measured({0: "0-7,12-15", 1: "8-11"}, RING)["npus"]
    names = ("id", "name", "numa", "pool", "cpus", "local", "distance", "caches")
    assert tuple(cards[0]) == names
    assert [card["pool"] for card in measured({"npu-0": "0-3", "gpu-0": "4-7"}, BOTH)["npus"]] == ["0-3", "4-7", "", ""]
    assert [tuple(cards[number].values()) for number in (0, 2)] == [
        (0, "NPU 0", 0, "0-7,12-15", 12, 0.667, 13.3, 2),
        (2, "NPU 2", 1, "", 0, None, None, None),
    ]


def test_measures_count_what_can_be_divided_and_is_known():
    assert [measured({0: "0-7", 1: "8-15"}, SMT, cpus=cpus)["split_cores"] for cpus in ("0-15", "")] == [0, 16]
    lost = host([None, 0], nodes=2, cores=8)
    assert [(card["local"], card["distance"]) for card in measured({0: "0-7", 1: "0-3,8-11"}, lost)["npus"]] == [(None, None), (0.5, 11.0)]
    bare = host([0], nodes=1, cores=8)
    bare["numa"][0]["distances"] = {}
    assert measured({0: "0-7"}, bare)["distance"] is None


@pytest.mark.parametrize("topology", [RING, SMT, STOCK, BOTH], ids=["ring", "smt", "stock", "both kinds"])
@pytest.mark.parametrize(
    "options", [{}, {"repair": False}, {"housekeeping": 1}, {"cpus": "0-191:3/4"}, {"strategy": "even_split"}], ids=str
)
def test_a_plan_is_measured_as_it_says_itself(topology, options):
    made = plan(topology, min_cpus=2, **options)
    values = measured(made, topology)
    assert {name: values[name] for name in made["quality"]} == made["quality"]
    assert sorted(card["pool"] for card in values["npus"] if card["pool"]) == sorted(normalize(entry["pool"]) for entry in made["npus"])


REFUSED = [
    (RING, [], "pools: expected a plan, or cpulists by logic id"),
    (RING, {4: "0-3"}, "pools: 4 names no cards of the host; it has npu-0, npu-1, npu-2, npu-3"),
    (BOTH, {0: "0-3"}, "pools: 0 names 2 cards of the host; it has gpu-0, gpu-1, npu-0, npu-1"),
    (RING, {0: "a"}, "pool of NPU 0: 'a' in 'a' is not a CPU number"),
    (RING, {"npus": [{"id": 0}]}, "pools: expected a plan of npu.affinity.plan, with cpus, and npus with id, pool and slice"),
]


@pytest.mark.parametrize("topology, pools, sentence", REFUSED, ids=[row[-1] for row in REFUSED])
def test_what_cannot_be_measured(topology, pools, sentence):
    with pytest.raises(ValueError) as refusal:
        measured(pools, topology)
    assert str(refusal.value).startswith(sentence)


def test_the_table_of_a_comparison():
    assert compare(USE_ADJACENT_NODES, ["topo_affinity", "even_split"])["table"] == [
        "   rule                      overlap  split cores  local  own node  distance  caches  balance  smallest  idle",
        "a  topo_affinity, published  12       0            66.7%  50%       15        2       0        12        0",
        "b  topo_affinity, repaired   0        0            100%   75%       12.5      2       0        8         0",
        "c  even_split, published     0        0            100%   100%      10        1       0        6         6",
        "c  even_split, repaired      0        0            100%   100%      10        1       0        6         6",
        "",
        "card   NUMA  a          b           c",
        "NPU 0  0     0-11       0-5,12-13   0-5",
        "NPU 1  1     6-17       6-11,14-15  6-11",
        "NPU 2  3     0-5,18-23  16-23       18-23",
        "",
        "repair of topo_affinity: overlap 12 -> 0, local 66.7% -> 100%, own node 50% -> 75%, distance 15 -> 12.5, smallest 12 -> 8",
        "- Published topo_affinity: NPUs 0, 2 share CPUs 0-5. Instead NPU 0 has",
        "  0-5,12-13, NPU 2 has 16-23.",
        "- Published topo_affinity: NPUs 0-1 share CPUs 6-11. Instead NPU 0 has",
        "  0-5,12-13, NPU 1 has 6-11,14-15.",
        "repair of even_split: nothing to repair in the pools",
    ]


def test_cards_with_the_same_pool_by_every_rule_are_only_counted():
    table = compare(IN_TURNS, ["global_slice", "even_split"])["table"]
    assert table[table.index("") : table.index("") + 5] == [
        "",
        "card   NUMA  a      b",
        "NPU 1  1     6-11   12-17",
        "NPU 2  0     12-17  6-11",
        "the other 2 have the same pool by every rule",
    ]
    assert "all 4 have the same pool by every rule" in compare(RING)["table"]


def test_rules_with_the_same_pools_share_a_letter():
    made = compare(STOCK, ["auto", "topo_affinity", "even_split"])
    labels = {"auto (topo_affinity)": "a", "topo_affinity": "a", "even_split": "b"}
    rules = [(f"{rule}, {stage}", label) for rule, label in labels.items() for stage in ("published", "repaired")]
    assert [(rule["rule"], rule["label"]) for rule in made["rules"]] == rules
    assert [entry["name"] for entry in made["differences"]] == [f"NPU {number}" for number in range(8)]
    assert made["differences"][0] == {"name": "NPU 0", "numa": 6, "pools": {"a": "144-167", "b": "144-155"}}
    assert made["table"][-3:] == [f"repair of {name}: nothing to repair in the pools" for name in ("auto", "topo_affinity", "even_split")]


def test_a_refusing_rule_says_why_and_others_are_made():
    offline = copy.deepcopy(STOCK)
    offline["cpus"]["offline"] = "192"
    made = compare(offline, "auto")
    published, repaired = made["rules"]
    assert (published["label"], published["quality"], repaired["label"]) == (None, None, "a")
    assert published["refused"].startswith("CPUs 192 are offline")
    refusal = "auto, published refuses: CPUs 192 are offline, and the published rule stops at the first of them, for"
    assert any(line.startswith(refusal) and line.endswith(" …") for line in made["table"])
    assert "repair of auto: pools where the published rule has none" in made["table"]
    few = compare(RING, "even_split", min_cpus=7)
    assert [bool(rule["refused"]) for rule in few["rules"]] == [True, True]
    assert few["differences"] == []
    assert few["table"][-1] == "repair of even_split: refuses"


def test_a_rule_that_binds_nothing_refuses():
    made = compare(host([0, 1], nodes=2, cores=16, family="a5"), "cluster")
    assert made["rules"][0]["refused"].startswith("[cpu_bind_ascend_950] insufficient CPU clusters. numa=0")
    assert made["rules"][1]["quality"]["missing"] == []


def test_options_reach_every_rule_and_the_measures():
    made = compare(SMT, ["global_slice", "even_split"], housekeeping=1, smt="threads")
    assert [rule["quality"]["idle"] for rule in made["rules"]] == ["", "", "", ""]
    assert {card["pool"] for rule in made["rules"] for card in rule["quality"]["npus"]} >= {"1-7,9-15"}
    assert len(compare(STOCK, cpus="0-95")["rules"]) == 4
    bare = compare(host([]))
    assert ([rule["quality"]["npus"] for rule in bare["rules"]], bare["differences"]) == ([[]] * 4, [])


def test_comparing_ignores_the_plan_in_force_and_changes_nothing():
    topology = {**RING, "npus": RING["npus"][1:], "applied": plan(RING)}
    before = copy.deepcopy(topology)
    assert compare(topology)["rules"] == compare({**topology, "applied": None})["rules"]
    assert topology == before
    assert measured(plan(topology), topology)["idle"] == "", "CPUs kept for a lost card are not idle"


@pytest.mark.parametrize("strategies", [["best"], [], None, 3, ["auto", "best"]])
def test_only_known_strategies_are_made(strategies):
    names = "auto, cluster, distributed, even_split, global_slice, packed, topo_affinity"
    with pytest.raises(ValueError, match=f"strategies: expected some of {names}; got"):
        compare(RING, strategies)


def test_the_example_of_the_reference_is_what_the_filter_shows(tmp_path):
    generate("a2_4x48", tmp_path / "host")
    table = compare(gather(Host(str(tmp_path / "host"))), ["topo_affinity"])["table"]
    assert "\n".join(table[:3]) in (REPOSITORY / "docs/strategies-reference.md").read_text()
