# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A card drops off the bus of a running host: the others close up in their ids and must not move."""

from __future__ import annotations

import json

import pytest
from planner_hosts import host, pools

from ansible_collections.npu.affinity.plugins.plugin_utils._plan import plan

NODES = [6, 4, 6, 4, 0, 2, 0, 2]


def without(lost, applied, topology=None):
    """Return the host after cards were lost, with ids that closed up, and with the plan in force as JSON gives it back."""
    topology = topology or host(NODES)
    left = [card for card in topology["npus"] if card["id"] not in lost]
    return {**topology, "npus": [{**card, "id": number} for number, card in enumerate(left)], "applied": json.loads(json.dumps(applied))}


def smallest(made):
    """Return as much of a plan as is needed: ids, PCI functions and pools."""
    return {"npus": [{key: entry[key] for key in ("id", "pci", "pool")} for entry in made["npus"]]}


@pytest.mark.parametrize("remembered", [lambda made: made, smallest], ids=["the whole plan", "ids, functions and pools"])
def test_the_others_keep_what_they_have(remembered):
    before = plan(host(NODES))
    after = plan(without([3], remembered(before)))
    assert [entry["id"] for entry in after["npus"]] == [0, 1, 2, 3, 4, 5, 6]
    assert after["npus"] == [{**entry, "id": entry["id"] - (entry["id"] > 3)} for entry in before["npus"] if entry["id"] != 3]
    assert after["npus"][3]["slice"] == "npu-4.slice"
    assert after["lost"] == [before["npus"][3]]
    assert after["strategy"] == "topo_affinity"
    assert after["warnings"] == [
        "NPU 3 (PCI 0000:04:00.0) of the plan in force cannot be found, and the others keep their pools and slices; "
        "npu_affinity_replan: true plans anew for those that are there."
    ]


def test_a_new_plan_would_have_moved_somebody():
    before = plan(host(NODES))
    after = plan(without([3], before), replan=True)
    assert after["npus"][1]["pool"] != before["npus"][1]["pool"]
    assert after["lost"] == after["warnings"] == []


def test_a_second_card_is_lost_after_the_first_and_one_comes_back():
    before = plan(host(NODES))
    first = plan(without([3], before))
    second = plan(without([0, 3], first))
    assert [entry["pci"] for entry in second["lost"]] == ["0000:01:00.0", "0000:04:00.0"]
    assert [entry["slice"] for entry in second["npus"]] == [f"npu-{number}.slice" for number in (1, 2, 4, 5, 6, 7)]
    one_back = plan(without([0], second))
    assert one_back["npus"][2] == {**before["npus"][3], "id": 2}
    assert [entry["pci"] for entry in one_back["lost"]] == ["0000:01:00.0"]
    all_back = plan(without([], one_back))
    assert all_back["npus"] == before["npus"]
    assert all_back["lost"] == all_back["warnings"] == []


def test_nothing_is_lost_and_nothing_is_said():
    before = plan(host(NODES))
    again = plan(without([], before))
    assert again == before


def test_all_cards_are_gone():
    before = plan(host(NODES), housekeeping=1)
    after = plan(without(range(8), before), housekeeping=1)
    assert after["npus"] == []
    assert after["lost"] == before["npus"]
    assert after["housekeeping"] == before["housekeeping"]
    assert after["quality"]["idle"] == ""


def test_a_subset_is_asked_for():
    before = plan(host(NODES))
    after = plan(without([3], before), npus=[3])
    assert after["npus"] == [{**before["npus"][4], "id": 3}]


ANEW = [
    (
        "other options",
        lambda applied, topology: None,
        {"housekeeping": 1},
        "but are planned anew: it was made with other values of housekeeping.",
    ),
    (
        "another strategy, and CPUs gone",
        lambda applied, topology: topology["cpus"].update(online="0-149,152-191"),
        {"strategy": "even_split"},
        "it was made with other values of strategy",
    ),
    (
        "CPUs gone",
        lambda applied, topology: topology["cpus"].update(online="0-149,152-191"),
        {},
        "CPUs 150-151 of NPU 0 can no longer be used",
    ),
    (
        "a card that nobody knows",
        lambda applied, topology: topology["npus"][5].update(pci="0000:77:00.0"),
        {},
        "the plan in force does not know NPU 5 (PCI 0000:77:00.0)",
    ),
    (
        "pools that overlap",
        lambda applied, topology: applied["npus"][0].update(pool=applied["npus"][1]["pool"]),
        {},
        "it gives CPUs 96-119 to more than one card",
    ),
]


@pytest.mark.parametrize("change, options, why", [row[1:] for row in ANEW], ids=[row[0] for row in ANEW])
def test_where_pools_cannot_be_kept_the_host_is_planned_anew_and_told_why(change, options, why):
    topology = without([3], plan(host(NODES)))
    change(topology["applied"], topology)
    after = plan(topology, **options)
    assert after["lost"] == []
    assert why in after["warnings"][0]
    assert after["npus"] == plan({**topology, "applied": None}, **options)["npus"]


def test_options_that_say_the_same_in_other_words_are_the_same():
    before = plan(host(NODES), housekeeping=1, cpus="0-191", min_cpus=6)
    applied = {**before, "options": {**before["options"], "housekeeping": "1", "npus": [0, 1]}}
    assert plan(without([3], applied), housekeeping="1", cpus="0-95,96-191", min_cpus=6)["lost"]


def test_cards_without_pci_function_cannot_be_told_and_are_planned_anew():
    topology = host(NODES)
    for card in topology["npus"]:
        card["pci"] = None
    after = plan(without([3], plan(topology), topology))
    assert after["lost"] == after["warnings"] == []


def duo(chips_of_functions):
    """Return a host of cards whose two chips share a PCI function."""
    topology = host([0, 0, 1, 1], nodes=2, cores=16, family="310p")
    for card in topology["npus"]:
        card.update(pci=f"0000:0{card['id'] // 2}:00.0", chip=card["id"] % 2)
    topology["npus"] = [
        {**card, "id": number}
        for number, card in enumerate(card for card in topology["npus"] if card["chip"] in chips_of_functions.get(card["pci"], ()))
    ]
    return topology


@pytest.mark.parametrize("with_chips", [True, False])
def test_two_chips_of_one_function(with_chips):
    whole = {"0000:00:00.0": [0, 1], "0000:01:00.0": [0, 1]}
    before = plan(duo(whole))
    applied = {**before, "npus": [{**entry, "chip": entry["id"] % 2} if with_chips else entry for entry in before["npus"]]}
    half = duo({"0000:01:00.0": [0, 1]})
    assert pools(plan({**half, "applied": applied})) == {0: before["npus"][2]["pool"], 1: before["npus"][3]["pool"]}
    one_chip = duo({**whole, "0000:00:00.0": [1]})
    kept = plan({**one_chip, "applied": applied})
    assert kept["npus"][0]["slice"] == ("npu-1.slice" if with_chips else "npu-0.slice")


def test_gpus_keep_their_slices_as_well():
    topology = host([0, 0, 1, 1], nodes=2, cores=8, family="gpu")
    before = plan(topology, min_cpus=4)
    after = plan(without([1], smallest(before), topology), min_cpus=4)
    assert [(entry["id"], entry["slice"], entry["irq"], entry["main"]) for entry in after["npus"]] == [
        (0, "gpu-0.slice", "", "0-3"),
        (1, "gpu-2.slice", "", "8-11"),
        (2, "gpu-3.slice", "", "12-15"),
    ]
