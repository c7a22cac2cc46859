# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips a task gets by every product's rule, against a search through all sets of chips that the rule allows."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import choice, select, superpods, request
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import product_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES


@pytest.mark.parametrize(
    ("story", "family", "free", "count", "multi", "chips"),
    [
        ("an odd remainder goes before a pair", "atlas800_9000", "2,4-5", 1, False, [2]),
        ("two from a whole ring, since taking from three leaves one", "atlas800_9000", "0-2,4-7", 2, False, [4, 5]),
        ("the whole server", "atlas800_9000", "0-7", 8, True, list(range(8))),
        ("half a server is one ring", "half_910_x4", "1-3", 2, False, [1, 2]),
        ("no affinity", "a2", "1,3,6", 2, False, [1, 3]),
        ("ten of one task: the same positions in both rings", "box16", "0-5,7-15", 10, False, [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]),
        ("ten of several tasks: any positions", "box16", "0-4,11-15", 10, True, [0, 1, 2, 3, 4, 11, 12, 13, 14, 15]),
        ("the smaller ring", "box16", "0-7,8-10", 3, False, [8, 9, 10]),
        ("one die of a half-free module", "a3", "0-3,7", 1, False, [7]),
        ("whole modules, though two dies are free before", "a3", "1,2,6-7", 2, True, [6, 7]),
        ("eight dies", "a3_box8", "0-7", 8, True, list(range(8))),
        ("two from a card with two", "300I_card", "0-3,4-5", 2, False, [4, 5]),
        ("over cards, the emptiest first", "300I_chip", "0-3,5,8-9", 4, False, [5, 8, 9, 0]),
        ("half-used cards first", "300I_duo_chip", "0-1,3,5", 3, False, [3, 5, 0]),
        ("even: whole cards only", "300I_duo_distributed", "1,2-3,4,6-7", 4, False, [2, 3, 6, 7]),
        ("odd without a half-used card", "300I_duo_distributed", "0-3", 3, False, [0, 1, 2]),
        ("the tightest mesh", "mesh4", "0-3,5-7", 3, False, [5, 6, 7]),
        ("two meshes", "mesh4", "0-7,9,12-15", 8, False, list(range(8))),
        ("a mesh of eight processors", "mesh4_8", "1-7", 4, True, [4, 5, 6, 7]),
        ("no links", "atlas350_8", "1,3-7", 4, True, [1, 3, 4, 5]),
        ("a full mesh", "atlas850", "1,3-7", 4, True, [1, 3, 4, 5]),
        ("a number that meshes do not fit", "mesh4", "1,3-7,9", 5, False, [1, 3, 4, 5, 6]),
    ],
)
def test_chips_of_a_task(story, family, free, count, multi, chips):
    assert choice.choose(free, count, family, multi).chips == chips


@pytest.mark.parametrize(
    ("family", "free", "count", "multi", "words"),
    [
        ("atlas800_9000", "0-7", 3, False, "size not allowed: a task on Atlas 800 (model 9000) cannot have 3 NPUs; ask for 1-2, 4, 8"),
        ("a3", "0-15", 1, True, "size not allowed: a task of a job with several tasks on Atlas 800 A3 cannot have 1 NPU;"),
        ("box16", "0-15", 11, False, "size not allowed"),
        ("atlas800_9000", "0-1,4-5", 4, False, "free are 0-1,4-5, that is 2 in ring 0, 2 in ring 1, and rings of 4 are not split"),
        ("a3", "0,2,4", 2, False, "1 in module 0, 1 in module 1, 1 in module 2"),
        ("a2", "3", 2, False, "no fit: Atlas 800T A2 or Atlas 900 A2 unit cannot give 2 NPUs to a task: 1 chip is free (3)"),
        ("a2", "", 2, False, "0 chips are free (none)"),
        ("a2", "9", 1, False, "has chips 0-7, not 9"),
        ("a2", [0, 0], 1, False, "expected different chip ids"),
        ("a2", [0], 0, False, "1 or more; got 0"),
        ("a9", [0], 1, False, "family: expected one of 300I_card"),
        ("a2", {"0": 1}, 1, False, "free: expected a list of chip ids"),
    ],
)
def test_refusals_name_what_is_free_and_what_is_needed(family, free, count, multi, words):
    with pytest.raises(ValueError, match=".") as refused:
        choice.choose(free, count, family, multi)
    assert words in str(refused.value)


def _groups(family, chips):
    return {chip // RULES[family].group for chip in chips}


def _of_group(family, chips, group):
    return [chip for chip in chips if chip // RULES[family].group == group]


def _obeys(family, free, chosen, multi):
    """Say whether a rule allows these chips at all, written from the document's words and not from the code."""
    count = len(chosen)
    size = RULES[family].group
    whole = [chip for chip in chosen if len(_of_group(family, chosen, chip // size)) == size]
    if family in ("atlas800_9000", "half_910_x4", "300I_card", "300I_duo_card"):
        return count == 8 or len(_groups(family, chosen)) == 1
    if family == "box16" and count <= 8:
        return len(_groups(family, chosen)) == 1
    if family == "box16":
        left, right = ([chip % 8 for chip in _of_group(family, chosen, ring)] for ring in (0, 1))
        return len(left) == len(right) and (multi or left == right)
    if family in ("a3", "a3_box8"):
        return count == 1 or len(whole) == count
    if family == "300I_duo_distributed":
        rest = [chip for chip in chosen if chip not in whole]
        return len(rest) == count % 2
    if family in ("mesh4", "mesh4_8") and count < 4:
        return len(_groups(family, chosen)) == 1
    if family in ("mesh4", "mesh4_8") and count % 4 == 0:
        return len(whole) == count
    return True


def _cost(family, free, chosen):
    """Return what a set of chips spoils, the least first: by the order that is published for groups, or by the whole groups broken."""
    rule = RULES[family]
    groups = _groups(family, chosen)
    left = [len(_of_group(family, free, group)) for group in groups]
    if family in ("atlas800_9000", "half_910_x4", "300I_card", "300I_duo_card") and len(chosen) < 8:
        return rule.way.order[len(chosen)].index(left[0]) if left[0] in rule.way.order[len(chosen)] else 99
    if family in ("box16", "mesh4", "mesh4_8") and len(groups) == 1:
        return left[0]
    if family in ("a3", "a3_box8") and len(chosen) == 1:
        return left[0]
    if family in ("300I_chip", "300I_duo_chip", "300I_duo_distributed"):
        return sum(number == rule.group for number in left)
    return 0


@st.composite
def hosts(draw):
    family = draw(st.sampled_from(sorted(RULES)))
    rule = RULES[family]
    most = min(rule.chips, 16 if family == "box16" else 8)
    free = draw(st.sets(st.integers(0, most - 1), max_size=most))
    multi = draw(st.booleans())
    count = draw(st.sampled_from([size for size in rule.sizes(multi) if size <= most]))
    return family, sorted(free), count, multi


@given(hosts())
@settings(max_examples=130, deadline=None)
def test_a_choice_obeys_the_rule_and_matches_the_best_set(host):
    family, free, count, multi = host
    allowed = [chosen for chosen in combinations(free, count) if _obeys(family, free, chosen, multi)]
    best = min((_cost(family, free, chosen) for chosen in allowed), default=None)
    assert RULES[family].score(free, count, RULES[family].chips, multi) >= 0
    picked = RULES[family].pick(free, count, multi)
    if picked is None:
        assert not allowed or best == 99, f"{family}: {allowed[0]} of {free} obeys the rule"
        return
    assert len(set(picked)) == count and set(picked) <= set(free)
    assert _obeys(family, free, tuple(sorted(picked)), multi)
    assert _cost(family, free, picked) == best


@pytest.mark.parametrize(
    ("family", "free", "count", "allocatable", "score"),
    [
        ("atlas800_9000", "0", 1, 8, 263),
        ("atlas800_9000", "4-7", 1, 8, 236),
        ("a3", "0", 1, None, 512),
        ("a3", "0-1", 1, None, 240),
        ("a3_box8", "0-3", 2, None, 8 * (16 - 2)),
        ("a2", "0-3", 2, 8, 796),
        ("box16", "0-2,8-11", 3, 16, 16 * 16 + 9),
        ("box16", "0-15", 10, 16, 16 * (16 - 3)),
        ("300I_duo_card", "0-1,3", 1, None, 16),
        ("300I_duo_distributed", "0-3", 1, None, 8 * (16 - 10)),
        ("mesh4_8", "0-3,5-7", 3, None, 16 * (16 - 8 - 4)),
        ("mesh4_8", "0-5", 5, None, 8 * (8 - 1)),
        ("mesh4", "0-3,5-7", 3, None, 64 * (64 - 16 - 4)),
        ("mesh4", "0-5", 5, 6, 16 * (16 - 1)),
        ("atlas350_16", "0-5", 5, 15, 1500 - 6),
        ("atlas850", "2-7", 4, 8, 800 - 6),
        ("atlas950", "2-7", 3, 8, 800 - 6),
    ],
)
def test_scores(family, free, count, allocatable, score):
    rule = RULES[family]
    assert rule.score(expand(free), count, allocatable or rule.chips, False) == score


def _topology(family, count, **more):
    per_card = more.get("chips_per_card", 1)
    return {
        "npus": [
            {"kind": "npu", "id": number, "phy_id": number, "card": number // per_card, "chip": number % per_card, "family": family}
            for number in range(count)
        ]
    }


@pytest.mark.parametrize(
    ("family", "count", "more", "mode", "rule"),
    [
        ("910", 8, {}, "chip", "atlas800_9000"),
        ("910", 4, {}, "chip", "half_910_x4"),
        ("910", 2, {}, "chip", "card_910_x2"),
        ("a2", 8, {}, "chip", "a2"),
        ("a2", 16, {}, "chip", "box16"),
        ("a3", 16, {"chips_per_card": 2}, "chip", "a3"),
        ("a3", 8, {"chips_per_card": 2}, "chip", "a3_box8"),
        ("310", 16, {}, "card", "300I_card"),
        ("310p", 8, {"chips_per_card": 2}, "distributed", "300I_duo_distributed"),
        ("310p", 8, {}, "chip", "300I_pro"),
    ],
)
def test_the_product_comes_from_the_facts(family, count, more, mode, rule):
    assert product_of(_topology(family, count, **more), mode) == (rule, "")


TABLE = [  # MindCluster, "Affinity Based on Ascend AI Processors": the sizes of single tasks, then those of distributed ones
    ("atlas350_8", "1-8", "1-8"),
    ("atlas350_16", "1-16", "1-16"),
    ("mesh4_8", "1-8", "1-8"),
    ("mesh4", "1-16", "1-16"),
    ("atlas850", "1-2,4,8", "1-2,4,8"),
    ("atlas850_superpod", "1-2,4,8", "8"),
    ("atlas950", "1-8", "8"),
]


@pytest.mark.parametrize(("family", "single", "distributed"), TABLE)
def test_sizes_of_the_products_with_ascend_950(family, single, distributed):
    assert [compress(RULES[family].sizes(multi)) for multi in (False, True)] == [single, distributed]


def test_a_size_that_no_mesh_fits_is_reported_as_not_guaranteed():
    assert compress(RULES["mesh4_8"].loose) == "5-7"
    assert compress(RULES["mesh4"].loose) == "5-7,9-11,13-15"
    assert "guarantees no affinity for 5 chips" in select.select_npus("0-7", 5, "mesh4_8")["reason"]
    assert "guarantees" not in select.select_npus("0-7", 4, "mesh4_8")["reason"]


def _of_950(count, product, name):
    topology = _topology("a5", count)
    return {"machine": {"product": product}, "npus": [{**npu, "name": name} for npu in topology["npus"]]}


PR, DT = "Ascend950PR", "Ascend950DT"
KNOWN = [
    ("Atlas 950 SuperPoD", 8, DT, {}, "auto", "atlas950"),
    ("Atlas 850 SuperPoD", 8, DT, {}, "auto", "atlas850_superpod"),
    ("Atlas 850", 8, DT, {"superpod": 0}, "auto", "atlas850_superpod"),
    ("Atlas 850", 8, DT, {"product": "atlas850"}, "auto", "atlas850"),
    ("Atlas 850E", 8, DT, {}, "atlas850", "atlas850"),
    ("Server X", 8, PR, {"product": "atlas350_8"}, "auto", "atlas350_8"),
    ("Server X", 8, PR, {}, "atlas350_8", "atlas350_8"),
    ("Server X", 6, PR, {}, "atlas350_16", "atlas350_16"),
    ("Server X", 16, PR, {}, "mesh4", "mesh4"),
]


@pytest.mark.parametrize(("product", "count", "name", "labels", "wanted", "rule"), KNOWN)
def test_ascend_950_products_come_from_facts_labels_or_request(product, count, name, labels, wanted, rule):
    assert product_of(_of_950(count, product, name), "chip", labels, wanted) == (rule, "")


ASSUMED = [
    ("Atlas 350", 8, DT, {}, "mesh4_8", "fit mesh4_8 and atlas350_8, and mesh4_8 is assumed"),
    ("Server X", 8, PR, {}, "mesh4_8", "(product Server X, NPUs Ascend950PR) fit mesh4_8 and atlas350_8, and mesh4_8 is assumed"),
    ("Server X", 16, PR, {}, "mesh4", "fit mesh4 and atlas350_16, and mesh4 is assumed"),
    ("Atlas 850", 8, DT, {}, "atlas850", "fit atlas850 and atlas850_superpod, and atlas850 is assumed"),
    ("Server X", 8, DT, {}, "atlas850", "fit atlas850, atlas850_superpod and atlas950, and atlas850 is assumed"),
    ("Server X", 8, DT, {"superpod": 1}, "atlas850_superpod", "fit atlas850_superpod and atlas950, and atlas850_superpod is assumed"),
    ("PowerEdge R350", 8, DT, {}, "atlas850", "fit atlas850, atlas850_superpod and atlas950"),
    ("", 8, "", {}, "mesh4_8", "(product unknown, NPUs without a name) fit mesh4_8, atlas350_8, atlas850, atlas850_superpod and atlas950"),
    ("", 16, None, {}, "mesh4", "fit mesh4 and atlas350_16"),
]


@pytest.mark.parametrize(("product", "count", "name", "labels", "rule", "words"), ASSUMED)
def test_what_the_facts_of_an_ascend_950_leave_open_is_said(product, count, name, labels, rule, words):
    found = product_of(_of_950(count, product, name), "chip", labels)
    assert found.rule == rule
    assert words in found.assumed
    assert "set npu_affinity_labels.product in the inventory, or name the family" in found.assumed


@pytest.mark.parametrize(
    ("topology", "labels", "words"),
    [
        (_of_950(16, "Atlas 850", DT), {}, "No rule is known for 16 chips of the Ascend 950 (product Atlas 850, NPUs Ascend950DT)"),
        (_of_950(16, "Server X", PR), {"product": "mesh4_8"}, "a host with 16 chips of the family a5 can be atlas350_16, mesh4"),
        (_of_950(8, "Server X", PR), {"product": "a2"}, "npu_affinity_labels.product is 'a2'; a host with 8 chips of the family a5"),
        (_topology("a2", 16), {"product": "a2"}, "a host with 16 chips of the family a2 can be box16"),
    ],
)
def test_a_product_that_cannot_be_is_refused(topology, labels, words):
    with pytest.raises(ValueError, match=".") as refused:
        product_of(topology, "chip", labels)
    assert words in str(refused.value)


def test_a_selection_says_what_it_assumes():
    chosen = select.select_npus(_of_950(8, "Server X", PR), 4)
    assert (chosen["family"], chosen["product"]) == ("mesh4_8", "Atlas 350, 8 processors in meshes of 4")
    assert "and mesh4_8 is assumed" in chosen["assumed"]
    assert select.select_npus(_of_950(8, "Server X", PR), 4, "atlas350_8")["assumed"] == ""
    assert select.select_npus(_topology("a2", 8), 1)["assumed"] == ""


def test_idle_npus_are_logic_ids_while_rules_use_physical_ids():
    topology = _topology("a3", 16, chips_per_card=2)
    topology["npus"] = [dict(npu, id=npu["id"] - 2) for npu in topology["npus"][2:]]  # card 0 dropped off the bus
    topology["npus"][0]["busy"] = True
    chosen = select.select_npus(topology, 1)
    assert chosen["chips"] == [1], "physical chip 3 next to the busy chip 2"
    assert select.select_npus(topology, 4)["chips"] == [2, 3, 4, 5]
    assert chosen["reason"] == "Chips 3 are in module 1 of Atlas 800 A3."


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"npus": []}, "no NPU to choose from"),
        ({"npus": [{"kind": "gpu", "id": 0}]}, "GPUs have no published rule"),
        ({"npus": [{"id": 0, "family": "a2"}, {"id": 1, "family": "a3"}]}, "families a2, a3"),
        ({"npus": [{"id": 17, "family": "a2"}]}, "No rule is known for 18 chips of the family a2"),
    ],
)
def test_facts_that_name_no_product(topology, words):
    with pytest.raises(ValueError, match=".") as refused:
        select.select_npus(topology, 1)
    assert words in str(refused.value)


def test_a_shared_chip_is_the_fullest_that_has_room():
    used = {"0": {"core": 30, "hbm": 10, "policy": "fixed-share"}, "1": {"core": 60, "hbm": 10, "policy": "fixed-share"}}
    request = {"core": 40, "hbm_mb": 10, "policy": "fixed-share"}
    assert choice.share(used, [2], request, 100) == (1, 16 * 200)
    assert choice.share(used, [2], {**request, "core": 41}, 100) == (0, 16 * (200 - 29))
    assert choice.share(used, [2, 3], {**request, "policy": "elastic"}, 100) == (2, 16 * (200 - 60))
    with pytest.raises(ValueError, match="chip 0 has 70 percent and 90 MB left, chip 1 has 40 percent"):
        choice.share(used, [], {**request, "core": 80}, 100)


@pytest.mark.parametrize(
    ("story", "free", "wanted", "block", "reserve", "taken"),
    [
        ("the document: 18 and 26 are used before 34", {0: 18, 1: 26, 2: 34}, 2, 16, 2, [0, 1]),
        ("the document: with 19, 26 and 34, the exact double wins", {0: 19, 1: 26, 2: 34}, 2, 16, 2, [2, 2]),
        ("a wide one only when needed", {0: 9, 1: 33}, 2, 8, 0, [0, 1]),
        ("the reserve goes last, the SuperPod with most left over first", {0: 4, 1: 5}, 2, 4, 2, [1, 0]),
        ("the reserve of one SuperPod can hold several blocks", {0: 4}, 2, 2, 3, [0, 0]),
        ("the document: with 2 in reserve, 3 hosts left over go before 2", {0: 2, 1: 3}, 1, 1, 2, [1]),
        ("the document: with 2 in reserve, 3 hosts left over go before 4", {0: 4, 1: 3}, 1, 1, 2, [1]),
    ],
)
def test_blocks_of_superpods(story, free, wanted, block, reserve, taken):
    assert [pod for pod, _hosts in superpods.take(free, wanted, block, reserve)] == taken


def test_soft_affinity_takes_pieces_where_blocks_run_out():
    with pytest.raises(ValueError, match="required 3, total 2"):
        superpods.take({0: 5, 1: 5}, 3, 4)
    assert superpods.take({0: 5, 1: 5}, 3, 4, soft=True) == [(0, 4), (1, 4), (0, 1), (1, 1)]


@given(st.dictionaries(st.integers(0, 8), st.integers(0, 40), max_size=6), st.integers(1, 6), st.integers(1, 8), st.integers(0, 4))
def test_blocks_are_found_whenever_there_are_enough(free, wanted, block, reserve):
    enough = sum(count // block for count in free.values()) >= wanted
    try:
        taken = superpods.take(free, wanted, block, reserve)
    except ValueError:
        assert not enough
        return
    assert len(taken) == wanted and enough
    assert all(sum(hosts for pod, hosts in taken if pod == number) <= count for number, count in free.items())


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"sp_block": 32, "node_npus": 16}, None),
        ({"sp_block": 0}, "sp-block 0 is not a number"),
        ({"replicas": 4, "per_task": 16, "sp_block": 32}, None),
        ({"replicas": 3, "per_task": 16, "sp_block": 32}, "48 NPUs of the job are not a multiple of sp-block 32"),
        ({"replicas": 2, "per_task": 8, "sp_block": 16}, "have 16 NPUs each, not 8"),
        ({"replicas": 1, "per_task": 8, "sp_block": 8}, None),
        ({"replicas": 1, "per_task": 3}, "a single task in a SuperPod has 1-2, 4, 6, 8, 10, 12, 14, 16 NPUs, not 3"),
    ],
)
def test_sizes_of_jobs(given_, words):
    known = {"per_task": None, "replicas": None, "sp_block": None, "node_npus": 16, **given_}
    refusal = request.of_superpod(RULES["a3"].single, **known)
    assert (refusal is None) if words is None else words in refusal
