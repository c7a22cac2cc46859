# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes one set of pools better than another, whoever made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.table import plan_table
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine as _machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import goals, options, planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import quality

STOCK = host([6, 4, 6, 4, 0, 2, 0, 2])
RING = host([0, 0, 1, 1], nodes=2, cores=8)
SMT = host([0, 1], nodes=2, cores=4, threads=2, numbering="far")

FAR_A3 = host([4] * 4 + [6] * 4 + [2] * 4 + [0] * 4, cores=40, threads=2, family="a3")
"""Four NPUs on each of four nodes out of eight with 80 CPUs; node 1 is near to node 0, 3 to 2 and so on."""
BY_NUMBER = [f"{20 * number}-{20 * number + 19}" for number in range(16)]

NEARER = {"nearest": False, "optimal": False, "gap": {"remote": 80, "distance": 1600}}
UNKNOWN = {"nearest": None, "smallest_possible": None, "optimal": None}
ONE_OF_EIGHT = {"balance": 24, "evenness": 24, "idle": "0-167", "idle_near": "0-167", **UNKNOWN}
NOWHERE = {"local": None, "own_node": None, "remote": None, **UNKNOWN}


def far(local, remote, distance):
    gap = {"remote": remote, "distance": distance}
    return {"local": local, "own_node": local, "remote": remote, "nearest": False, "optimal": False, "gap": gap}


def gap(**values):
    return {"optimal": False, "gap": values}


def larger(by, possible):
    """Return the warnings on pools with near CPUs in no pool, by which all pools could be larger."""
    return {"smallest_possible": possible, **gap(smallest=by, idle_near=16 if by > 1 else 4)}


# The tests of comparisons have others: an overlap, idle CPUs, whole and split cores.
POOLS = [
    ("one on the other node", RING, ["0-3", "8-11", "4-7", "12-15"], {**far(0.5, 8, 96), "smallest": 4, "smallest_possible": 4}),
    ("all on the other node", RING, ["8-11", "12-15", "0-3", "4-7"], {**far(0.0, 16, 192), "smallest": 4, "smallest_possible": 4}),
    ("a node without NPUs is near to its socket", STOCK, ["168-191", *[""] * 7], {"own_node": 0.0, **ONE_OF_EIGHT}),
    ("and far from the others", STOCK, ["", "168-191", *[""] * 6], {"local": 0.0, "own_node": 0.0, "remote": 24, **ONE_OF_EIGHT}),
    ("no card has a node", host([None, None], nodes=2, cores=4), ["0-3", "4-7"], {"smallest": 4, **NOWHERE}),
    ("one node has all CPUs", host([None, None], nodes=1, cores=8), ["0-3", "4-7"], {"smallest": 4, "smallest_possible": 4}),
    (
        "no CPUs, others without NPUs",
        host([1], nodes=4, cores=[8, 0, 8, 8]),
        ["0-7"],
        {"own_node": 0.0, "smallest": 8, "idle": "8-23", **larger(16, 24), "idle_near": "8-23"},
    ),
    (
        "near CPUs are idle",
        RING,
        ["0-2", "4-6", "8-10", "12-14"],
        {"smallest": 3, "idle": "3,7,11,15", **larger(1, 4), "idle_near": "3,7,11,15"},
    ),
    (
        "some near CPUs are idle",
        RING,
        ["0-3", "4-7", "8-11", "12-14"],
        {
            "balance": 1,
            "smallest": 3,
            "evenness": 1,
            "idle": "15",
            "idle_near": "15",
            "smallest_possible": 4,
            **gap(smallest=1, idle_near=1),
        },
    ),
    (
        "more uneven than necessary",
        host([0, 0, 1], nodes=2, cores=[6, 1]),
        ["0-3", "4-5", "6"],
        {"balance": 3, "smallest": 1, "evenness": 2, "smallest_possible": 1, **gap(evenness=2)},
    ),
    (
        "threads of a core are idle",
        SMT,
        ["0-3,8", "4-7,12-15"],
        {
            "whole_cores": False,
            "balance": 3,
            "smallest": 5,
            "idle": "9-11",
            "idle_near": "9-11",
            "smallest_possible": 8,
            **gap(smallest=3, idle_near=3, split_cores=3),
        },
    ),
    (
        "no CPUs, others of an NPU",
        host([0, 1], nodes=2, cores=[8, 0]),
        ["0-3", "4-7"],
        {"local": 0.5, "own_node": 0.5, "remote": 4, "smallest": 4, "smallest_possible": 4},
    ),
    (
        "the node of another NPU is not local, even if nothing of the own one may be divided",
        FAR_A3,
        BY_NUMBER,
        {"local": 0.25, "own_node": 0.25, "remote": 240, "smallest": 20, "smallest_possible": 20, "options": {"cpus": "0-319"}, **NEARER},
    ),
]


REFERENCE = Path(__file__).parents[4] / "docs/strategies-reference.md"


def numbered(text):
    """Return the numbered sentences of a text, of which each list starts with 1."""
    return [" ".join(sentence.split()) for sentence in re.findall(r"^\d\. ((?:.+\n)+?)(?=\d\. |\n)", text, re.MULTILINE)]


def test_the_reference_has_all_goals_word_for_word():
    told = numbered(goals.__doc__)
    assert len(told) == len(goals.Score._fields) == 8
    assert numbered(REFERENCE.read_text().partition("## Goals")[2].partition("\n## ")[0]) == told


PERFECT = {"disjoint": True, "whole_cores": True, "local": 1.0, "own_node": 1.0, "remote": 0, "balance": 0, "smallest": 0, "idle": ""}
PERFECT |= {"nearest": True, "smallest_possible": 0, "evenness": 0, "idle_near": "", "optimal": True, "gap": {}}


def quality_of(topology, cpulists, cpus="", **options_):
    machine = _machine.read(topology, options.Options("auto", cpus, "", None, "cores", 1, True, False))
    pools = {card: mask(cpulist) for card, cpulist in zip(machine.cards, cpulists, strict=True)}
    return quality(Groups(machine), pools, **options_)


@pytest.mark.parametrize("topology, cpulists, expected", [row[1:] for row in POOLS], ids=[row[0] for row in POOLS])
def test_the_quality_of_any_pools(topology, cpulists, expected):
    expected = dict(expected)
    assert quality_of(topology, cpulists, **expected.pop("options", {})) == {**PERFECT, **expected}


def test_repair_never_makes_it_worse():
    for topology in (STOCK, RING, SMT, host([0, 1, 2, 3], nodes=4, cores=8), host([0, 0, 0], nodes=2, cores=16)):
        published = planner.plan(topology, repair=False, min_cpus=4)["quality"]
        repaired = planner.plan(topology, min_cpus=4)["quality"]
        assert repaired["disjoint"]
        assert repaired["local"] >= published["local"]
        assert repaired["balance"] <= published["balance"] or not published["disjoint"]


NAMED = host([1, 1, 1, 1, 1, 0, 0, 0], nodes=2, cores=40, threads=2, family="a3")


def test_a_plan_says_how_much_nearer_the_best_possible_is():
    published, best = planner.plan(NAMED, strategy="global_slice"), planner.plan(NAMED)
    assert (published["quality"]["optimal"], published["quality"]["gap"]) == (False, {"remote": 120, "distance": 1440})
    assert (best["quality"]["local"], best["quality"]["optimal"], best["quality"]["gap"]) == (0.875, True, {})
    tables = ["\n".join(plan_table(made, NAMED)) for made in (published, best)]
    assert ["120 CPUs more remote than the best possible" in " ".join(table.split()) for table in tables] == [True, False]


FLOORS = [
    ("fewer than all can have", RING, ["0-2", "4-7", "8-11", "12-15"], 4, (False, {"smallest": 1, "idle_near": 1})),
    ("as many as all can have", RING, ["0-3", "4-7", "8-11", "12-15"], 6, (True, {})),
    ("fewer than are possible at the same distance", RING, ["0-2", "4-7", "8-11", "12-15"], 3, (False, {"smallest": 1, "idle_near": 1})),
    ("whole cores allow no more", SMT, ["0-3,8-11", "4-7,12-15"], 9, (True, {})),
]


@pytest.mark.parametrize("topology, cpulists, floor, expected", [row[1:] for row in FLOORS], ids=[row[0] for row in FLOORS])
def test_a_smallest_pool_below_the_published_one_is_a_gap(topology, cpulists, floor, expected):
    found = quality_of(topology, cpulists, floor=floor)
    assert (found["optimal"], found["gap"]) == expected


def test_uneven_plan_is_optimal_if_no_remote_cpu_could_be_near():
    made = planner.plan(host([0, 1], nodes=2, cores=[6, 1], threads=2, numbering="far", family="310p"), cpus="0,3-5,7-10,12-13")
    assert (made["quality"]["local"], made["quality"]["optimal"]) == (0.6, True)
