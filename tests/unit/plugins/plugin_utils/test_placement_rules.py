# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips a task gets by every product's rule, against a search through all sets of chips that the rule allows."""

from functools import partial
from itertools import combinations
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import returns

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import select
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import product_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

# The product, its free chips and what one task asks for, of a job with several tasks where it is "n of many": the chips and the score.
CHOICES = [
    ("an odd remainder goes before a pair", "atlas800_9000", "2,4-5", "1", "2", 8 * (8 * 4 - 0) + 5),
    ("a single chip before a ring", "atlas800_9000", "4-7", "1", "4", 8 * (8 * 4 - 3) + 4),
    ("two from a whole ring, since taking from three leaves one", "atlas800_9000", "0-2,4-7", "2", "4-5", 8 * (8 * 4 - 1) + 1),
    ("the whole server", "atlas800_9000", "0-7", "8 of many", "0-7", 8 * 8 * 4),
    ("half a server is one ring", "half_910_x4", "1-3", "2", "1-2", 8 * (4 * 4 - 2)),
    ("no affinity", "a2", "1,3,6", "2", "1,3", 800 - 3),
    ("ten of one task: the same positions in both rings", "box16", "0-5,7-15", "10", "0-4,8-12", 16 * (16 - 2) + 1),
    ("ten of several tasks: any positions", "box16", "0-4,11-15", "10 of many", "0-4,11-15", 16 * 16 + 6),
    ("the smaller ring", "box16", "0-7,8-10", "3", "8-10", 16 * 16 + 5),
    ("the first of two rings with as many", "box16", "1-3,8-10", "2", "1-2", 16 * (16 - 1) + 10),
    ("one die of a half-free module", "a3", "0-3,7", "1", "7", 16 * (32 - 4)),
    ("one die of a whole module, on hosts without another last", "a3", "0-1", "1", "0", 16 * (32 - 1 - 16)),
    ("whole modules, though two dies are free before", "a3", "1,2,6-7", "2 of many", "6-7", 16 * (32 - 2)),
    ("eight dies", "a3_box8", "0-7", "8 of many", "0-7", 8 * 16),
    ("two dies of four", "a3_box8", "0-3", "2", "0-1", 8 * (16 - 2)),
    ("two from a card with two", "300I_card", "0-3,4-5", "2", "4-5", 8 * 4),
    ("one from a half-used card", "300I_duo_card", "0-1,3", "1", "3", 8 * 2),
    ("over cards, the emptiest first", "300I_chip", "0-3,5,8-9", "4", "5,8-9,0", 0),
    ("half-used cards first", "300I_duo_chip", "0-1,3,5", "3", "3,5,0", 0),
    ("even: whole cards only", "300I_duo_distributed", "1,2-3,4,6-7", "4", "2-3,6-7", 8 * (16 - 3)),
    ("odd, with a half-used card", "300I_duo_distributed", "0-1,3", "1", "3", 8 * (16 - 3)),
    ("odd without a half-used card", "300I_duo_distributed", "0-3", "1", "0", 8 * (16 - 10)),
    ("more chips than are scored", "300I_duo_distributed", "0-8", "2", "0-1", 0),
    ("the tightest mesh", "mesh4", "0-3,5-7", "3", "5-7", 64 * (64 - 16 - 4)),
    ("the tightest mesh of eight processors", "mesh4_8", "0-3,5-7", "3", "5-7", 16 * (16 - 8 - 4)),
    ("one mesh of four", "mesh4", "0-15", "4", "0-3", 64 * (64 - 16 * 3 - 12)),
    ("two meshes", "mesh4", "0-7,9,12-15", "8", "0-7", 64 * (64 - 16 - 5)),
    ("a mesh of eight processors", "mesh4_8", "1-7", "4 of many", "4-7", 16 * (16 - 3)),
    ("a number that meshes do not fit", "mesh4", "1,3-7,9", "5", "1,3-6", 16 * (16 - 2)),
    ("such a number of eight processors", "mesh4_8", "0-5", "5", "0-4", 8 * (8 - 1)),
    ("no links", "atlas350_8", "1,3-7", "4 of many", "1,3-5", 800 - 6),
    ("a full mesh", "atlas850", "1,3-7", "4 of many", "1,3-5", 800 - 6),
]


def asked(text):
    count, _of, many = text.partition(" of ")
    return int(count), bool(many)


@pytest.mark.parametrize("family, free, task, chips, score", [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_chips_of_a_task_and_the_score_of_its_host(family, free, task, chips, score):
    count, multi = asked(task)
    chosen = select.choose(free, count, family, multi)
    assert (chosen.chips, chosen.score) == (expand(chips), score)


def test_a_host_with_fewer_healthy_chips_has_a_lower_score():
    assert [select.choose("0-5", 5, "atlas350_16", allocatable=chips).score for chips in (None, 15)] == [1600 - 6, 1500 - 6]


REFUSED = [
    ("atlas800_9000", "0-7", 3, False, "size not allowed: a task on Atlas 800 (model 9000) cannot have 3 NPUs; ask for 1-2, 4, 8"),
    ("a3", "0-15", 1, True, "size not allowed: a task of a job with several tasks on Atlas 800 A3 cannot have 1 NPU; ask for 2, 4, 6, "),
    ("box16", "0-15", 11, False, "size not allowed: a task on Atlas 200T A2 Box16 cannot have 11 NPUs; ask for 1-8, 10, 12, 14, 16"),
    ("atlas800_9000", "0-1,4-5", 4, False, "free are 0-1,4-5, that is 2 in ring 0, 2 in ring 1, and rings of 4 are not split for that;"),
    ("atlas800_9000", "0-6", 8, False, "7 chips are free (0-6); wait for other chips, or ask for another number"),
    ("mesh4", "0-2,4-6", 4, False, "3 in mesh 0, 3 in mesh 1, and meshes of 4 are not split for that"),
    ("a3", "0,2,4", 2, False, "1 in module 0, 1 in module 1, 1 in module 2"),
    ("a2", "3", 2, False, "no fit: Atlas 800T A2 or Atlas 900 A2 unit cannot give 2 NPUs to a task: 1 chip is free (3)"),
    ("a2", "", 2, False, "0 chips are free (none)"),
    ("a2", "8-9", 1, False, "has chips 0-7, not 8-9"),
    ("300I_duo_chip", "32", 1, False, "Atlas 300I Duo by chip has chips 0-31, not 32"),
    ("box16", "8-15", 10, False, "cannot give 10 NPUs to a task: 8 chips are free (8-15)"),
    ("a2", [0, 0], 1, False, "expected different chip ids"),
    ("a2", [-1], 1, False, "expected different chip ids"),
    ("a2", [0], 0, False, "1 or more; got 0"),
    ("a2", [0], "two", False, "1 or more; got 'two'"),
    ("a9", [0], 1, False, "family: expected one of 300I_card"),
    ("a2", {"0": 1}, 1, False, "free: expected a list of chip ids"),
]


@pytest.mark.parametrize("family, free, count, multi, words", REFUSED)
def test_refusals_name_what_is_free_and_what_is_needed(family, free, count, multi, words):
    returns(words, select.choose, free, count, family, multi)


def _groups(family, chips):
    return {chip // RULES[family].group for chip in chips}


def _of_group(family, chips, group):
    return [chip for chip in chips if chip // RULES[family].group == group]


def _obeys(family, chosen, multi):
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
        return len(chosen) - len(whole) == count % 2
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
        row = rule.rows[len(chosen)][left[0] - 1]
        return 99 if row == rule.group else row
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
    allowed = [chosen for chosen in combinations(free, count) if _obeys(family, chosen, multi)]
    best = min((_cost(family, free, chosen) for chosen in allowed), default=None)
    assert RULES[family].score(free, count, RULES[family].chips, multi) >= 0
    picked = RULES[family].pick(free, count, multi)
    if picked is None:
        assert not allowed or best == 99, f"{family}: {allowed[0]} of {free} obeys the rule"
        return
    assert len(set(picked)) == count and set(picked) <= set(free)
    assert _obeys(family, tuple(sorted(picked)), multi)
    assert _cost(family, free, picked) == best


# MindCluster, "Affinity Based on Ascend AI Processors": the sizes of single tasks, of distributed ones, and those without affinity.
SIZES = [
    ("a3", "1-2,4,6,8,10,12,14,16", "2,4,6,8,10,12,14,16", ""),
    ("atlas350_8", "1-8", "1-8", ""),
    ("atlas350_16", "1-16", "1-16", ""),
    ("mesh4_8", "1-8", "1-8", "5-7"),
    ("mesh4", "1-16", "1-16", "5-7,9-11,13-15"),
    ("atlas850", "1-2,4,8", "1-2,4,8", ""),
    ("atlas850_superpod", "1-2,4,8", "8", ""),
    ("atlas950", "1-8", "8", ""),
]


@pytest.mark.parametrize("family, single, distributed, loose", SIZES)
def test_sizes_of_products(family, single, distributed, loose):
    rule = RULES[family]
    assert [compress(sizes) for sizes in (rule.sizes(False), rule.sizes(True), rule.loose)] == [single, distributed, loose]


def facts(family, count, title="", name=None, per_card=1):
    npu = {"kind": "npu", "family": family, "name": name}
    npus = [{**npu, "id": number, "phy_id": number, "card": number // per_card, "chip": number % per_card} for number in range(count)]
    return {"machine": {"product": title}, "npus": npus}


PR, DT = "Ascend950PR", "Ascend950DT"
X, X16 = facts("a5", 8, "Server X", PR), facts("a5", 16, "Server X", PR)
DT8 = facts("a5", 8, "Server X", DT)
OF_X = "(product Server X, NPUs Ascend950PR)"
# Facts of a host, labels, the mode or the family of the request, its rule, and what is assumed, or why it has no rule.
PRODUCTS = [
    (facts("910", 2), {}, "chip", "card_910_x2", ""),
    (facts("910", 3), {}, "chip", "half_910_x4", ""),
    (facts("910", 5), {}, "chip", "atlas800_9000", ""),
    (facts("910", 9), {}, "chip", None, "No rule is known for 9 chips of the family 910; name one with family: "),
    (facts("a2", 8), {}, "chip", "a2", ""),
    (facts("a2", 16), {}, "chip", "box16", ""),
    (facts("a3", 16, per_card=2), {}, "chip", "a3", ""),
    (facts("a3", 8, per_card=2), {}, "chip", "a3_box8", ""),
    (facts("310", 16), {}, "card", "300I_card", ""),
    (facts("310", 16), {}, "chip", "300I_chip", ""),
    (facts("310p", 8, per_card=2), {}, "distributed", "300I_duo_distributed", ""),
    (facts("310p", 8), {}, "chip", "300I_pro", ""),
    (facts("a2", 8), {}, "whole", None, "mode: expected one of chip, card, distributed; got 'whole'"),
    ({"npus": []}, {}, "chip", None, "no NPU to choose from"),
    ({"npus": [{"kind": "gpu", "id": 0}]}, {}, "chip", None, "GPUs have no published rule"),
    ({"npus": [{"id": 0, "family": "a2"}, {"id": 1, "family": "a3"}]}, {}, "chip", None, "families a2, a3"),
    ({"npus": [{"id": 17, "family": "a2"}]}, {}, "chip", None, "No rule is known for 18 chips of the family a2"),
    ({"npus": [{"id": 1, "phy_id": 9, "family": "a2"}]}, {}, "chip", "box16", ""),
    (facts("a5", 8, "Atlas 950 SuperPoD", DT), {}, "auto", "atlas950", ""),
    (facts("a5", 8, "Atlas 850 SuperPoD", DT), {}, "auto", "atlas850_superpod", ""),
    (facts("a5", 8, "Atlas 850", DT), {"superpod": 0}, "auto", "atlas850_superpod", ""),
    (facts("a5", 8, "Atlas 850", DT), {"product": "atlas850"}, "auto", "atlas850", ""),
    (facts("a5", 8, "Atlas 850E", DT), {}, "atlas850", "atlas850", ""),
    (facts("a5", 8, "Atlas 850", DT), {}, "auto", "atlas850", "fit atlas850 and atlas850_superpod, and atlas850 is assumed"),
    (facts("a5", 16, "Atlas 850", DT), {}, "auto", None, "for 16 chips of the Ascend 950 (product Atlas 850, NPUs Ascend950DT); name one"),
    (facts("a5", 8, "Atlas 350", DT), {}, "auto", "mesh4_8", "fit mesh4_8 and atlas350_8, and mesh4_8 is assumed"),
    (X, {}, "auto", "mesh4_8", f"{OF_X} fit mesh4_8 and atlas350_8, and mesh4_8 is assumed"),
    (X, {"product": "atlas350_8"}, "auto", "atlas350_8", ""),
    (X, {}, "atlas350_8", "atlas350_8", ""),
    (X, {"product": "a2"}, "auto", None, "npu_affinity_labels.product is 'a2'; a host with 8 chips of the family a5 can be atlas350_8, "),
    (facts("a5", 6, "Server X", PR), {}, "atlas350_16", "atlas350_16", ""),
    (X16, {}, "mesh4", "mesh4", ""),
    (X16, {}, "auto", "mesh4", f"{OF_X} fit mesh4 and atlas350_16, and mesh4 is assumed"),
    (X16, {"product": "mesh4_8"}, "auto", None, "a host with 16 chips of the family a5 can be atlas350_16, mesh4"),
    (facts("a2", 16), {"product": "a2"}, "auto", None, "a host with 16 chips of the family a2 can be box16"),
    (DT8, {}, "auto", "atlas850", "fit atlas850, atlas850_superpod and atlas950, and atlas850 is assumed"),
    (DT8, {"superpod": 1}, "auto", "atlas850_superpod", "fit atlas850_superpod and atlas950, and atlas850_superpod is assumed"),
    (facts("a5", 8, "PowerEdge R350", DT), {}, "auto", "atlas850", "fit atlas850, atlas850_superpod and atlas950"),
    (facts("a5", 8, "", ""), {}, "auto", "mesh4_8", "(product unknown, NPUs without a name) fit mesh4_8, atlas350_8, atlas850, "),
    (facts("a5", 16), {}, "auto", "mesh4", "fit mesh4 and atlas350_16"),
]


@pytest.mark.parametrize("topology, labels, wanted, rule, words", PRODUCTS)
def test_the_product_comes_from_facts_labels_or_the_request(topology, labels, wanted, rule, words):
    product = partial(product_of, topology, labels=labels, **{"wanted" if wanted in ("auto", *RULES) else "mode": wanted})
    if rule is None:
        returns(words, product)
    else:
        name, assumed = product()
        assert (name, bool(assumed)) == (rule, bool(words)) and words in assumed
        assert not words or "set npu_affinity_labels.product in the inventory, or name the family" in assumed


def test_a_selection_names_its_chips_and_what_is_assumed():
    assert select.select_npus(X, 4) == {
        "family": "mesh4_8",
        "product": "Atlas 350, 8 processors in meshes of 4",
        "chips": [0, 1, 2, 3],
        "score": 16 * (16 - 8 - 4),
        "reason": "Chips 0-3 are in mesh 0 of Atlas 350, 8 processors in meshes of 4.",
        "assumed": product_of(X).assumed,
    }
    assert select.select_npus(X, 4, "atlas350_8")["assumed"] == select.select_npus(facts("a2", 8), 1)["assumed"] == ""
    loose = "Chips 0-4 are in meshes 0-1 of Atlas 350, 8 processors in meshes of 4. MindCluster guarantees no affinity for 5 chips."
    assert select.select_npus("0-7", 5, "mesh4_8")["reason"] == loose
    returns("family: chip ids do not show the product; name one of 300I_card, ", select.select_npus, "0-7", 5)
    assert select.select_npus(X, share={"request": shared(5, "elastic") | {"hbm_mb": 5}, "chip_hbm_mb": 100})["chips"] == [0]
    returns("share: request is missing; expected used, request {core, hbm_mb,", select.select_npus, X, share={"chip_hbm_mb": 100})


def test_idle_npus_are_logic_ids_while_rules_use_physical_ids():
    topology = facts("a3", 16, per_card=2)
    topology["npus"] = [dict(npu, id=npu["id"] - 2) for npu in topology["npus"][2:]]  # card 0 dropped off the bus
    topology["npus"][0]["busy"] = True
    chosen = select.select_npus(topology, 1)
    assert chosen["chips"] == [1], "physical chip 3 next to the busy chip 2"
    assert select.select_npus(topology, 4)["chips"] == [2, 3, 4, 5]
    assert chosen["reason"] == "Chips 3 are in module 1 of Atlas 800 A3."


def shared(core, policy, hbm=10):
    return {"core": core, "hbm": hbm, "policy": policy}


USED = {"0": shared(30, "fixed-share"), "1": shared(60, "fixed-share"), "2": shared(60, "fixed-share", 20)}
SHARES = [
    ("the fullest that has room", USED, [3], (40, 10, "fixed-share"), (2, 16 * 200)),
    ("the next one where it has none", USED, [3], (41, 10, "fixed-share"), (0, 16 * (200 - 29))),
    ("where its memory is full", USED, [3], (40, 81, "fixed-share"), (1, 16 * 200)),
    ("an unused one for another policy", USED, [3, 4], (40, 10, "elastic"), (3, 16 * (200 - 60))),
    ("a whole chip", USED, [3], (100, 100, "fixed-share"), (3, 16 * 200)),
    ("no room", USED, [], (80, 10, "fixed-share"), "chip 0 has 70 percent and 90 MB left, chip 1 has 40 percent and 90 MB left, chip 2"),
    ("no chip of the policy", {"0": USED["0"]}, [], (5, 5, "elastic"), "policy elastic: chip 0 is shared by policy fixed-share; ask"),
    (
        "one that is shared is not unused",
        {"0": USED["0"]},
        [0],
        (5, 5, "elastic"),
        "policy elastic: chip 0 is shared by policy fixed-share",
    ),
    ("no chip", {}, [], (5, 5, "elastic"), "no fit: no chip has room for 5 percent and 5 MB under policy elastic: none is known; ask"),
    ("no share", {}, [3], (0, 5, "elastic"), "size not allowed: a share of a chip is 1 to 100 percent and 1 to 100 MB; got 0 and 5"),
    ("more than a chip", {}, [3], (5, 101, "elastic"), "1 to 100 MB; got 5 and 101"),
]


@pytest.mark.parametrize("used, unused, task, expected", [row[1:] for row in SHARES], ids=[row[0] for row in SHARES])
def test_a_shared_chip_has_room_and_the_same_policy(used, unused, task, expected):
    share = {"used": used, "request": dict(zip(("core", "hbm_mb", "policy"), task, strict=True)), "chip_hbm_mb": 100}
    if isinstance(expected, tuple):
        reason = "Chip {0} has room for {1} percent and {2} MB under policy {3}.".format(expected[0], *task)
        expected = ([expected[0]], expected[1], reason)
    returns(expected, lambda: itemgetter("chips", "score", "reason")(select.select_npus(unused, share=share)))
