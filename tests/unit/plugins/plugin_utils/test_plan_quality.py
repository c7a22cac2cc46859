# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes one set of pools better than another, whoever made them."""

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
OTHERS = host([1], nodes=4, cores=[8, 0, 8, 8])
UNEVEN = host([0, 0, 1], nodes=2, cores=[6, 1])
EMPTY = host([0, 1], nodes=2, cores=[8, 0])
FAR_A3 = host([4] * 4 + [6] * 4 + [2] * 4 + [0] * 4, cores=40, threads=2, family="a3")
"""Four NPUs on each of four nodes out of eight with 80 CPUs; node 1 is near to node 0, 3 to 2 and so on."""
BY_NUMBER = " ".join(f"{20 * number}-{20 * number + 19}" for number in range(16))

PERFECT = {"disjoint": True, "whole_cores": True, "local": 1.0, "own_node": 1.0, "remote": 0, "balance": 0, "smallest": 0, "idle": ""}
PERFECT |= {"nearest": True, "smallest_possible": 0, "evenness": 0, "idle_near": "", "optimal": True, "gap": {}}
UNKNOWN = {"nearest": None, "smallest_possible": None, "optimal": None}
ONE_OF_EIGHT = {"balance": 24, "evenness": 24, "idle": "0-167", "idle_near": "0-167", **UNKNOWN}
NOWHERE = {"local": None, "own_node": None, "remote": None, **UNKNOWN}


def all_of(size):
    return {"smallest": size, "smallest_possible": size}


def near(share):
    return {"local": share, "own_node": share}


def far(remote, distance):
    return {"remote": remote, "nearest": False, "optimal": False, "gap": {"remote": remote, "distance": distance}}


def idle(cpus, possible, **gap):
    """Return the warnings on near CPUs in no pool, with which the smallest pool could have so many."""
    return {"idle": cpus, "idle_near": cpus, "smallest_possible": possible, "optimal": False, "gap": gap}


ONE_IDLE = {"balance": 1, "smallest": 3, "evenness": 1, **idle("15", 4, smallest=1, idle_near=1)}
THREADS = {"whole_cores": False, "balance": 3, "smallest": 5, **idle("9-11", 8, smallest=3, idle_near=3, split_cores=3)}
TOO_UNEVEN = {"balance": 3, "evenness": 2, "optimal": False, "gap": {"evenness": 2}, **all_of(1)}
NEARER = {**far(240, 0), **near(0.25), **all_of(20), "gap": {"remote": 80, "distance": 1600}}
# The tests of comparisons have others: an overlap, idle CPUs, whole and split cores.
POOLS = [
    ("one on the other node", RING, "0-3 8-11 4-7 12-15", "", {**far(8, 96), **near(0.5), **all_of(4)}),
    ("all on the other node", RING, "8-11 12-15 0-3 4-7", "", {**far(16, 192), **near(0.0), **all_of(4)}),
    ("a node without NPUs is near to its socket", STOCK, "168-191", "", {"own_node": 0.0, **ONE_OF_EIGHT}),
    ("and far from the others", STOCK, "none 168-191", "", {**near(0.0), "remote": 24, **ONE_OF_EIGHT}),
    ("no card has a node", host([None, None], nodes=2, cores=4), "0-3 4-7", "", {"smallest": 4, **NOWHERE}),
    ("one node has all CPUs", host([None, None], nodes=1, cores=8), "0-3 4-7", "", all_of(4)),
    ("others without NPUs", OTHERS, "0-7", "", {"own_node": 0.0, "smallest": 8, **idle("8-23", 24, smallest=16, idle_near=16)}),
    ("near CPUs are idle", RING, "0-2 4-6 8-10 12-14", "", {"smallest": 3, **idle("3,7,11,15", 4, smallest=1, idle_near=4)}),
    ("some near CPUs are idle", RING, "0-3 4-7 8-11 12-14", "", ONE_IDLE),
    ("more uneven than necessary", UNEVEN, "0-3 4-5 6", "", TOO_UNEVEN),
    ("threads of a core are idle", SMT, "0-3,8 4-7,12-15", "", THREADS),
    ("no CPUs, others of an NPU", EMPTY, "0-3 4-7", "", {**near(0.5), "remote": 4, **all_of(4)}),
    ("the node of another NPU is not local, even if nothing of the own one may be divided", FAR_A3, BY_NUMBER, "0-319", NEARER),
]


def quality_of(topology, cpulists, cpus="", **options_):
    machine = _machine.read(topology, options.Options("auto", cpus, "", None, "cores", 1, True, False))
    texts = ["" if text == "none" else text for text in cpulists.split()] + [""] * len(machine.cards)
    return quality(Groups(machine), {card: mask(text) for card, text in zip(machine.cards, texts, strict=False)}, **options_)


@pytest.mark.parametrize("topology", [STOCK, RING, SMT, host([0, 1, 2, 3], nodes=4, cores=8), host([0, 0, 0], nodes=2, cores=16)])
def test_repair_never_makes_it_worse(topology):
    published, repaired = (planner.plan(topology, repair=repair, min_cpus=4)["quality"] for repair in (False, True))
    assert repaired["disjoint"] and repaired["local"] >= published["local"]
    assert repaired["balance"] <= published["balance"] or not published["disjoint"]


@pytest.mark.parametrize("topology, cpulists, cpus, expected", [row[1:] for row in POOLS], ids=[row[0] for row in POOLS])
def test_the_quality_of_any_pools(topology, cpulists, cpus, expected):
    assert quality_of(topology, cpulists, cpus) == {**PERFECT, **expected}


FLOORS = [
    ("fewer than all can have", RING, "0-2 4-7 8-11 12-15", 4, (False, {"smallest": 1, "idle_near": 1})),
    ("as many as all can have", RING, "0-3 4-7 8-11 12-15", 6, (True, {})),
    ("fewer than are possible at the same distance", RING, "0-2 4-7 8-11 12-15", 3, (False, {"smallest": 1, "idle_near": 1})),
    ("whole cores allow no more", SMT, "0-3,8-11 4-7,12-15", 9, (True, {})),
]


@pytest.mark.parametrize("topology, cpulists, floor, expected", [row[1:] for row in FLOORS], ids=[row[0] for row in FLOORS])
def test_a_smallest_pool_below_the_published_one_is_a_gap(topology, cpulists, floor, expected):
    values = quality_of(topology, cpulists, floor=floor)
    assert (values["optimal"], values["gap"]) == expected


def test_a_plan_says_how_much_nearer_the_best_possible_is():
    topology = host([1, 1, 1, 1, 1, 0, 0, 0], nodes=2, cores=40, threads=2, family="a3")
    published, best = planner.plan(topology, strategy="global_slice"), planner.plan(topology)
    assert (published["quality"]["optimal"], published["quality"]["gap"]) == (False, {"remote": 120, "distance": 1440})
    assert (best["quality"]["local"], best["quality"]["optimal"], best["quality"]["gap"]) == (0.875, True, {})
    tables = ["\n".join(plan_table(made, topology)) for made in (published, best)]
    assert ["120 CPUs more remote than the best possible" in " ".join(table.split()) for table in tables] == [True, False]


REFERENCE = Path(__file__).parents[4] / "docs/strategies-reference.md"


def numbered(text):
    """Return the numbered sentences of a text, of which each list starts with 1."""
    return [" ".join(sentence.split()) for sentence in re.findall(r"^\d\. ((?:.+\n)+?)(?=\d\. |\n)", text, re.MULTILINE)]


def test_the_reference_has_all_goals_word_for_word():
    sentences = numbered(goals.__doc__)
    assert len(sentences) == len(goals.Score._fields) == 8
    assert numbered(REFERENCE.read_text().partition("## Goals")[2].partition("\n## ")[0]) == sentences
