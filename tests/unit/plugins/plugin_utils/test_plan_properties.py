# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of machines that nobody has built: whatever the shape, a plan keeps the invariants or says why there is none.

``HYPOTHESIS_EXAMPLES=20000 pytest tests/unit/plugins/plugin_utils/test_plan_properties.py`` looks longer.
"""

from __future__ import annotations

import copy
import json
import os

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as draw
from planner_hosts import cores_of, cpus, defects, host

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import STRATEGIES, plan

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", 80))
thoroughly = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
FAMILIES = ("a2", "a3", "a5", "310p", "310", "910", "", "gpu")


@draw.composite
def topologies(choose, most_cards=64, sizes=(0, 1, 3, 8, 12, 24)):
    number = choose(draw.integers(1, 16))
    gaps = choose(draw.lists(draw.sampled_from([1, 1, 1, 2, 7, 100]), min_size=number, max_size=number))
    ids = [sum(gaps[:place]) for place in range(number)]
    cores = choose(draw.lists(draw.sampled_from(sizes), min_size=number, max_size=number))
    assume(any(cores))
    threads = choose(draw.sampled_from([1, 2, 4]))
    nodes_of_cards = choose(draw.lists(draw.sampled_from([*ids, None, 999]), min_size=1, max_size=choose(draw.integers(1, most_cards))))
    topology = host(
        nodes_of_cards,
        nodes=ids,
        cores=cores,
        threads=threads,
        numbering=choose(draw.sampled_from(["adjacent", "far"])),
        nodes_per_socket=choose(draw.integers(1, 4)),
        caches=choose(draw.sampled_from([None, 1, 3, 8])),
    )
    everything = sorted(cpus(topology["cpus"]["online"]))
    shape_cards(choose, topology, everything)
    shape_nodes(choose, topology)
    if choose(draw.booleans()):
        switch_off(topology, set(choose(draw.lists(draw.sampled_from(everything), max_size=8))))
    if choose(draw.sampled_from([False, False, True])):
        exclusive = choose(draw.lists(draw.sampled_from(everything), min_size=1, max_size=6))
        topology["kubelet"] = {"policy": "static", "exclusive": {"pod/container": compress(set(exclusive))}, "warnings": []}
    return topology


def shape_cards(choose, topology, everything):
    """Give the cards families, kinds and whatever npu-smi may print; ids with gaps."""
    family = choose(draw.sampled_from(FAMILIES))
    mixed = choose(draw.integers(0, 9)) == 0
    printed = choose(draw.sampled_from(["node", "node", "nothing", "random"]))
    step = choose(draw.sampled_from([1, 1, 1, 3]))
    for card in topology["npus"]:
        card["family"] = choose(draw.sampled_from(FAMILIES)) if mixed else family
        card["kind"] = "gpu" if card["family"] == "gpu" else "npu"
        card["id"] *= step
        if printed == "nothing":
            card["affinity"] = None
        elif printed == "random":
            some = choose(draw.lists(draw.sampled_from(everything), max_size=12))
            card["affinity"] = choose(draw.sampled_from([None, "", compress(set(some)), card["affinity"], compress(everything)]))


def shape_nodes(choose, topology):
    for node in topology["numa"]:
        node["memory_mib"] = choose(draw.sampled_from([65536, 65536, 65536, 0]))
    kind = choose(draw.sampled_from(["sockets", "numbers", "none", "odd"]))
    for node in topology["numa"]:
        if kind == "numbers":
            node["distances"] = {int(other): value for other, value in node["distances"].items()}
        elif kind == "none":
            del node["distances"]
        elif kind == "odd":
            odd = draw.integers(11, 40)
            node["distances"] = {other: value if value == 10 else choose(odd) for other, value in node["distances"].items()}


def switch_off(topology, offline):
    """Take CPUs away as the kernel does: from the list of the online ones, from nodes, siblings and caches."""
    assume(cpus(topology["cpus"]["online"]) - offline)
    topology["cpus"]["offline"] = compress(offline)
    topology["cpus"]["online"] = compress(cpus(topology["cpus"]["online"]) - offline)
    for node in topology["numa"]:
        node["cpus"] = compress(cpus(node["cpus"]) - offline)
    for key, least in (("siblings", 2), ("caches", 1)):
        left = [cpus(text) - offline for text in topology["cpus"][key]]
        topology["cpus"][key] = [compress(group) for group in left if len(group) >= least]


@draw.composite
def options(choose, topology):
    everything = sorted(cpus(topology["cpus"]["online"]))
    some = draw.lists(draw.sampled_from(everything), min_size=1, max_size=3 * len(everything)).map(lambda chosen: compress(set(chosen)))
    first = choose(draw.sampled_from(everything))
    return {
        "strategy": choose(draw.sampled_from(["auto", "auto", *sorted(STRATEGIES)])),
        "cpus": choose(draw.one_of(draw.none(), draw.none(), some, draw.just(f"{first}-{everything[-1]}"))),
        "housekeeping": choose(draw.one_of(draw.just(""), draw.integers(0, 2), draw.just(f"{first}-{first}"))),
        "smt": choose(draw.sampled_from(["cores", "cores", "threads"])),
        "min_cpus": choose(draw.sampled_from([1, 2, 4, 5, 5, 5, 8])),
    }


def attempt(topology, **arguments):
    """Return the plan, or the sentence of the refusal."""
    try:
        return plan(topology, **arguments)
    except ValueError as error:
        return str(error)


@thoroughly
@given(draw.data())
def test_a_plan_keeps_the_invariants_or_says_why_there_is_none(data):
    topology = data.draw(topologies())
    arguments = data.draw(options(topology))
    before = copy.deepcopy(topology)
    made = attempt(topology, **arguments)
    assert topology == before, "the input was changed"
    if isinstance(made, str):
        event("refused")
        assert len(made.split()) > 5, made
        return
    event("mended" if made["repaired"] else "kept as published")
    assert defects(topology, made, cpulist=arguments["cpus"], **{key: value for key, value in arguments.items() if key != "cpus"}) == []
    assert json.loads(json.dumps(made)) == made


@thoroughly
@given(draw.data())
def test_the_same_for_every_subset_and_in_every_order(data):
    topology = data.draw(topologies(most_cards=12))
    arguments = data.draw(options(topology))
    whole = attempt(topology, **arguments)
    shuffled = copy.deepcopy(topology)
    for group in (shuffled["npus"], shuffled["numa"], shuffled["cpus"]["siblings"], shuffled["cpus"]["caches"]):
        group[:] = data.draw(draw.permutations(group))
    assert attempt(shuffled, **arguments) == whole
    subsets = draw.lists(draw.sampled_from([card["id"] for card in topology["npus"]]), max_size=6)
    attempts = [attempt(topology, npus=data.draw(subsets), **arguments) for _attempt in range(2)]
    parts = [made for made in attempts if not isinstance(made, str)]
    assert len(parts) == 2 or isinstance(whole, str)
    entries = {}
    for made in [*parts, *([] if isinstance(whole, str) else [whole])]:
        for entry in made["npus"]:
            assert entries.setdefault(entry["slice"], entry) == entry
        assert made["quality"] == parts[0]["quality"]


@thoroughly
@given(draw.data())
def test_enough_cores_on_every_node_are_never_refused(data):
    topology = data.draw(topologies(most_cards=4, sizes=(32, 48)))
    arguments = data.draw(options(topology)) | {"cpus": None, "housekeeping": ""}
    topology["kubelet"] = None
    if len({card["kind"] for card in topology["npus"]}) > 1:
        arguments["strategy"] = "auto"
    cores = cores_of(topology)
    for node in topology["numa"]:
        whole = {cores[cpu] for cpu in cpus(node["cpus"])}
        each = len(whole) // len(topology["npus"])
        assume(each and each * min(map(len, whole)) >= arguments["min_cpus"])
    assert not isinstance(made := attempt(topology, **arguments), str), made


@thoroughly
@given(draw.data())
def test_the_published_result_says_what_is_wrong_with_it(data):
    topology = data.draw(topologies(most_cards=16))
    arguments = data.draw(options(topology))
    made = attempt(topology, repair=False, **arguments)
    if isinstance(made, str):
        return
    held = [cpu for entry in made["npus"] for cpu in cpus(entry["pool"])]
    assert made["violations"] or len(held) == len(set(held)) and len(made["npus"]) == len(topology["npus"])
    mended = attempt(topology, **arguments)
    if made["violations"] == [] and not isinstance(mended, str) and not mended["repaired"]:
        assert {entry["id"]: entry["pool"] for entry in made["npus"]} == {entry["id"]: entry["pool"] for entry in mended["npus"]}


@thoroughly
@given(draw.data())
def test_a_lost_card_moves_nobody(data):
    topology = data.draw(topologies(most_cards=12))
    arguments = data.draw(options(topology)) | {"cpus": None}
    assume(len(topology["npus"]) > 1 and not isinstance(before := attempt(topology, **arguments), str))
    applied = json.loads(json.dumps(before))
    lost = data.draw(draw.sets(draw.sampled_from(range(len(topology["npus"]))), min_size=1))
    left = [dict(card) for place, card in enumerate(topology["npus"]) if place not in lost]
    for kind in ("npu", "gpu"):
        for number, card in enumerate(card for card in left if card["kind"] == kind):
            card["id"] = number
    after = plan({**topology, "npus": left, "applied": applied}, **arguments)
    kept = {entry["pci"]: {**entry, "id": None} for entry in after["npus"]}
    assert kept == {entry["pci"]: {**entry, "id": None} for entry in before["npus"] if entry["pci"] in kept}
    assert len(kept) == len(left)
    assert [entry["pci"] for entry in after["lost"]] == [entry["pci"] for entry in before["npus"] if entry["pci"] not in kept]
    assert any("npu_affinity_replan" in warning for warning in after["warnings"])
    again = plan({**topology, "npus": left, "applied": json.loads(json.dumps(after))}, **arguments)
    assert again["npus"] == after["npus"] and again["lost"] == after["lost"]
    back = plan({**topology, "applied": json.loads(json.dumps(after))}, **arguments)
    assert back["npus"] == before["npus"] and back["lost"] == []
