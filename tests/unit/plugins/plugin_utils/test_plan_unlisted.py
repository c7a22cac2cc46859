# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NPUs on the PCI bus that npu-smi does not list: the others neither grow at the first plan nor shrink when it lists them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import bound, host, plan

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.listing import sentences
from tests.simulator.faults import set_faults
from tests.simulator.generate import generate

A2 = host([6, 4, 6, 4, 0, 2, 0, 2])
ADJACENT = host([0, 0, 1, 1, 2, 2, 3, 3], nodes=4, cores=48)
A3 = host([number // 2 for number in range(16)], nodes=8, cores=80, family="a3", affinity=[None] * 16)
for number, npu in enumerate(A3["npus"]):
    npu.update(card=number // 2, chip=number % 2)
DUO = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=32, family="310p")
for number, npu in enumerate(DUO["npus"]):
    npu.update(card=number // 2, chip=number % 2, pci=f"0000:{number // 2 + 1:02x}:00.0")


def unlisted(topology, *ids, applied=None, **more):
    """Return a host whose driver lists all NPUs but these; logic ids have closed up."""
    gone = {npu["pci"]: npu for npu in topology["npus"] if npu["id"] in ids}
    listed = [npu for npu in topology["npus"] if npu["id"] not in ids]
    devices = [{"pci": pci, "family": npu["family"], "numa": npu["numa"]} for pci, npu in sorted(gone.items())]
    return bound({**topology, "npus": [{**npu, "id": number} for number, npu in enumerate(listed)], "unlisted": devices, **more}, applied)


def pools(made):
    return {(entry["pci"], entry["chip"]): entry["pool"] for entry in made["npus"]}


HOSTS = [
    ("a2 first", A2, (0,)),
    ("a2 last", A2, (7,)),
    ("a2 two of one node", A2, (1, 3)),
    ("adjacent nodes, repaired", ADJACENT, (2,)),
    ("a3 one die", A3, (5,)),
    ("a3 card", A3, (4, 5)),
    ("duo card", DUO, (2, 3)),
]


@pytest.mark.parametrize("topology, ids", [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
def test_other_cards_keep_the_cpus_they_have_on_the_whole_host(topology, ids):
    whole, first = plan(topology), plan(unlisted(topology, *ids))
    gone = {(npu["pci"], npu["chip"]) for npu in topology["npus"] if npu["id"] in ids}
    assert pools(first) == {key: pool for key, pool in pools(whole).items() if key not in gone}
    assert {(entry["pci"], entry["pool"]) for entry in first["lost"]} == {(key[0], pools(whole)[key]) for key in gone}
    assert first["repaired"] == [] or whole["repaired"]
    assert first["strategy"] == whole["strategy"]
    assert plan(unlisted(topology, *ids, applied=first)) == first, "the second run has nothing to change"
    listed = plan(bound(topology, first))
    assert (listed["npus"], listed["lost"]) == (whole["npus"], [])


def test_it_is_named_with_the_cpus_that_are_kept_for_it():
    first = plan(unlisted(A2, 3))
    assert first["warnings"] == [
        "NPU at 0000:04:00.0 is on the PCI bus and not listed by npu-smi: CPUs 120-143 are kept for it, in npu-7.slice, and "
        "no pool shrinks when it is listed. Logic ids can change then: name NPUs by PCI address."
    ]
    assert [entry["slice"] for entry in first["npus"]] == [f"npu-{number}.slice" for number in range(7)]
    slices = binding(unlisted(A2, 3, machine={"cgroup": "v2", "systemd": 255}), first, Work())["slices"]
    assert {unit["name"]: unit["cpus"] for unit in slices}["npu-7.slice"] == "120-143"


def test_gaps_in_the_numbers_hide_its_place_and_put_it_last():
    first = plan(unlisted({**A2, "npus": [{**npu, "card": 2 * npu["id"] + 1} for npu in A2["npus"]]}, 0))
    assert {entry["pool"].count("-") for entry in first["npus"]} == {1}
    assert (first["lost"][0]["pci"], first["lost"][0]["pool"]) == ("0000:01:00.0", "168-191")


def test_a_host_bound_without_it_does_not_move_until_replanned():
    topology = unlisted(A2, 3)
    before = plan({**topology, "unlisted": []})
    assert plan(bound(topology, before))["npus"] == before["npus"]
    replanned = plan(bound(topology, before), replan=True)
    assert [entry["pci"] for entry in replanned["lost"]] == ["0000:04:00.0"]
    assert plan(bound(topology, replanned))["npus"] == plan(topology)["npus"]


def test_a_listed_card_is_lost_and_so_is_one_that_leaves_the_bus():
    whole, first = plan(A2), plan(unlisted(A2, 3))
    lost = plan(unlisted(A2, 3, applied=whole))
    assert lost["lost"] == [whole["npus"][3]] and "of the plan in force cannot be found" in lost["warnings"][0]
    gone = plan(unlisted(A2, 3, applied=first, unlisted=[]))
    assert gone["npus"] == first["npus"]
    assert [entry["pool"] for entry in gone["lost"]] == ["120-143"] and not list(sentences(gone["lost"]))
    assert gone["warnings"][0].startswith("NPU 7 (PCI 0000:04:00.0) of the plan in force cannot be found")


def test_a_card_is_lost_beside_one_that_is_not_listed():
    first = plan(unlisted(A2, 3))
    topology = unlisted(A2, 0, 3, applied=first)
    topology["unlisted"] = topology["unlisted"][1:]
    after, fresh = plan(topology), plan(topology, housekeeping=1)
    assert pools(after) == {key: pool for key, pool in pools(first).items() if key != ("0000:01:00.0", 0)}
    assert [(entry["slice"], bool(entry.get("unlisted"))) for entry in after["lost"]] == [("npu-0.slice", False), ("npu-7.slice", True)]
    assert [(entry["pci"], bool(entry["pool"])) for entry in fresh["lost"]] == [("0000:01:00.0", False), ("0000:04:00.0", True)]
    assert plan(bound(topology, after)) == after, "the second run has nothing to change"
    assert plan(bound(topology, fresh), housekeeping=1) == fresh


@pytest.mark.parametrize("options", [{"repair": False}, {"bound_by": "workers"}], ids=str)
def test_published_pools_count_what_npu_smi_lists(options):
    assert plan(unlisted(A2, 3), **options) == plan(unlisted(A2, 3, unlisted=[]), **options)


@pytest.mark.parametrize("machine, card", [("a2_8x24", 3), ("a3_640_split", 2)])
def test_a_dead_card_as_it_is_gathered(tmp_path, machine, card):
    generate(machine, tmp_path)
    whole = plan(gather(Host(str(tmp_path))))["npus"]
    set_faults(tmp_path, dead=[card])
    topology = gather(Host(str(tmp_path)))
    first = plan(topology)
    everybody = [*first["npus"], *first["lost"]]
    assert len(first["lost"]) == len(whole) - len(first["npus"]) > 0
    assert {entry["pci"]: entry["pool"] for entry in everybody} == {entry["pci"]: entry["pool"] for entry in whole}
    assert sorted(entry["slice"] for entry in everybody) == sorted(entry["slice"] for entry in whole)
    assert all(f"NPU at {device['pci']} is on the PCI bus" in " ".join(first["warnings"]) for device in topology["unlisted"])


@settings(max_examples=20, deadline=None)
@given(topology=st.sampled_from([A2, ADJACENT, A3, DUO]), data=st.data())
def test_pools_stay_disjoint_whichever_cards_are_unlisted(topology, data):
    cards = sorted({npu["card"] for npu in topology["npus"]})
    gone = data.draw(st.sets(st.sampled_from(cards), min_size=1))
    ids = [npu["id"] for npu in topology["npus"] if npu["card"] in gone]
    first, whole = plan(unlisted(topology, *ids)), plan(topology)
    if len(gone) == len(cards):
        assert first["npus"] == [], "a host of which nothing is listed has no plan"
        return
    everybody = [*first["npus"], *first["lost"]]
    assert first["quality"]["disjoint"] and len({entry["slice"] for entry in everybody}) == len(topology["npus"])
    assert sorted(entry["pool"] for entry in everybody) == sorted(entry["pool"] for entry in whole["npus"])
    assert plan(unlisted(topology, *ids, applied=first)) == first
