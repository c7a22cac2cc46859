# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of machines that nobody has built: whatever the shape, a plan keeps the invariants or says why there is none.

Every run draws other machines; ``make properties MACHINES=20000`` draws many.
"""

import copy
import json
import os
from random import Random

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as draw
from planner_checks import cpu_set, defects, look, must_be_planned, wrong_pools, wrong_sentence
from planner_hosts import bound, host, plan, pools, switch_off

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import STRATEGIES

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", 130))
SHARDS = 8
"""So many tests share the examples, so that several processes can share the tests."""
SEEDS = draw.integers(0, 2**32 - 1)
ROLES = [None, None, None, {"irq": 1}, {"irq": 4}, {"irq": 3, "acl": 2, "release": 2}, {"kv": 2}, {"irq": 1, "kv": 3}]
FAMILIES = ("a2", "a3", "a5", "310p", "310", "910", "", "gpu")


@draw.composite
def topologies(choose):
    """Draw a host: its shape piece by piece, which lets a failure shrink to a small one, and its details by one number."""
    details = Random(choose(SEEDS))
    gaps = choose(draw.lists(draw.sampled_from([1, 1, 1, 2, 7, 100]), min_size=1, max_size=16))
    sizes = choose(draw.sampled_from([(24,), (16, 32), (8, 12, 24), (0, 8, 24), (0, 1, 3, 8, 12)]))
    ids = [sum(gaps[:place]) for place in range(len(gaps))]
    cores = [details.choice(sizes) for _node in ids]
    assume(any(cores))
    homes = [node for node, size in zip(ids, cores, strict=True) if size]
    if choose(draw.integers(0, 2)) == 2:
        homes = [*ids, None, 999]
    topology = host(
        [details.choice(homes) for _card in range(choose(draw.integers(1, 3 * len(ids))))],
        nodes=ids,
        cores=cores,
        threads=choose(draw.sampled_from([1, 2, 2, 4])),
        numbering=choose(draw.sampled_from(["adjacent", "far"])),
        nodes_per_socket=details.randint(1, 4),
        caches=details.choice([None, 1, 3, 8]),
    )
    everything = sorted(cpu_set(topology["cpus"]["online"]))
    shape_cards(details, topology, everything, choose(draw.sampled_from(FAMILIES)))
    shape_nodes(details, topology)
    if choose(draw.integers(0, 2)) == 2:
        offline = set(details.choices(everything, k=details.randint(1, 8)))
        assume(offline < set(everything))
        switch_off(topology, offline)
    if details.randint(0, 2) == 2:
        exclusive = details.choices(everything, k=details.randint(1, 6))
        topology["kubelet"] = {"policy": "static", "exclusive": {"pod/container": compress(set(exclusive))}, "warnings": []}
    if details.randint(0, 2) == 2:
        topology["cpus"]["isolated"] = compress(set(details.choices(everything, k=details.randint(1, 12))))
    return topology


def shape_cards(details, topology, everything, family):
    """Give the cards families, kinds and whatever npu-smi may print; ids with gaps."""
    mixed = details.randint(0, 9) == 9
    printed = details.choice(["node", "node", "nothing", "random"])
    step = details.choice([1, 1, 1, 3])
    for card in topology["npus"]:
        card["family"] = details.choice(FAMILIES) if mixed else family
        card["kind"] = "gpu" if card["family"] == "gpu" else "npu"
        card["id"] *= step
        if printed == "nothing":
            card["affinity"] = None
        elif printed == "random":
            some = set(details.choices(everything, k=details.randint(0, 12)))
            backwards = ",".join(map(str, sorted(some, reverse=True)))
            card["affinity"] = details.choice([None, "", compress(some), backwards, card["affinity"], compress(everything)])


def shape_nodes(details, topology):
    kind = details.choice(["sockets", "numbers", "none", "odd"])
    forgetful = details.randint(0, 2) == 2
    for node in topology["numa"]:
        node["memory_mib"] = details.choice([65536, 65536, 0]) if forgetful else 65536
        if kind == "numbers":
            node["distances"] = {int(other): value for other, value in node["distances"].items()}
        elif kind == "none":
            del node["distances"]
        elif kind == "odd":
            node["distances"] = {other: value if value == 10 else details.randint(11, 40) for other, value in node["distances"].items()}


@draw.composite
def options(choose, topology):
    everything = sorted(cpu_set(topology["cpus"]["online"]))
    details = Random(choose(SEEDS))
    some = compress(set(details.choices(everything, k=details.randint(1, 3 * len(everything)))))
    first = details.choice(everything)
    return {
        "strategy": choose(draw.sampled_from(["auto", "auto", *sorted(STRATEGIES)])),
        "cpus": details.choice([None, None, None, None, None, some, f"{first}-{everything[-1]}"]),
        "housekeeping": details.choice(["", "", "", 1, 2, f"{first}-{first}", compress(set(details.choices(everything, k=5)))]),
        "smt": choose(draw.sampled_from(["cores", "cores", "threads"])),
        "min_cpus": choose(draw.sampled_from([1, 2, 4, 5, 5, 8])),
        "roles": choose(draw.sampled_from(ROLES)),
        "exclude_isolated": details.choice([False, True]),
    }


def attempt(topology, **arguments):
    """Return the plan, or the sentence of the refusal."""
    try:
        return plan(topology, **arguments)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_whatever_the_machine(shard, seed):
    @hypothesis_seed(f"{seed} {shard}")
    @settings(max_examples=max(1, EXAMPLES // SHARDS), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(draw.data())
    def one_machine(data):
        topology = data.draw(topologies())
        arguments = data.draw(options(topology))
        details = Random(data.draw(SEEDS))
        before = json.dumps(topology)
        made = attempt(topology, **arguments)
        assert json.dumps(topology) == before, "the input was changed"
        if isinstance(made, str):
            event("refused")
            the_refusal_is_a_sentence_and_right(topology, arguments, made)
        else:
            event("repaired" if made["repaired"] else "kept as published")
            assert defects(topology, made, **arguments) == []
            assert json.loads(json.dumps(made)) == made
            a_lost_card_moves_nobody(topology, arguments, made, details)
            a_fault_costs_a_pool_at_most_a_core(topology, arguments, made, details)
            assert pools(plan(bound(topology, made), **arguments)) == pools(made), "the second bind"
        the_same_for_every_subset_and_in_every_order(topology, arguments, made, details)
        the_published_result_says_what_is_wrong_with_it(topology, arguments, made)

    one_machine()


A3_HOSTS = 40
"""So many random A3 hosts on which ``auto`` leaves the published slices are looked at."""


def a3_host(details):
    """Return a random A3 host, and options that leave some of its CPUs."""
    nodes, cards = details.choice([2, 4, 8]), details.choice([4, 8, 16])
    shape = {"cores": details.choice([16, 24, 32, 40, 48]), "threads": details.choice([1, 2])}
    homes = [details.randrange(nodes) for _card in range(cards)]
    topology = host(homes, nodes=nodes, **shape, numbering=details.choice(["adjacent", "far"]), family="a3")
    half = len(cpu_set(topology["cpus"]["online"])) // 2
    return topology, details.choice([{}, {}, {}, {"cpus": f"0-{half - 1}"}, {"housekeeping": 1}])


def test_auto_never_shrinks_the_smallest_pool_of_an_a3(seed):
    changed = 0
    for number in range(1000):
        topology, options = a3_host(Random(f"{seed} {number}"))
        published, made = attempt(topology, strategy="global_slice", repair=False, **options), attempt(topology, **options)
        if isinstance(published, str) or isinstance(made, str) or pools(published) == pools(made):
            continue
        changed += 1
        smallest = published["quality"]["smallest"]
        if published["violations"]:  # slices split cores, and whole ones may hold less
            seen = look(topology, **options)
            cores = seen.units(seen.usable)
            smallest = min(smallest, len(cores) // len(seen.cards) * min(len(core & seen.usable) for core in cores))
        else:
            assert made["quality"]["local"] > published["quality"]["local"], (number, options)
        assert made["quality"]["smallest"] >= smallest, (number, options, made["reason"], made["repaired"])
        assert defects(topology, made, **options) == []
        if changed == A3_HOSTS:
            return
    raise AssertionError(f"only {changed} of 1000 hosts left the slices")


def the_refusal_is_a_sentence_and_right(topology, arguments, refusal):
    assert not list(wrong_sentence(refusal))
    assert any(character.isdigit() for character in refusal), f"no numbers in: {refusal}"
    if "at once; use auto" not in refusal:
        assert not must_be_planned(look(topology, **arguments)), refusal


def the_same_for_every_subset_and_in_every_order(topology, arguments, whole, details):
    shuffled = {**topology, "cpus": dict(topology["cpus"])}
    for holder, name in ((shuffled, "npus"), (shuffled, "numa"), (shuffled["cpus"], "siblings"), (shuffled["cpus"], "caches")):
        holder[name] = details.sample(holder[name], len(holder[name]))
    assert attempt(shuffled, **arguments) == whole
    ids = [card["id"] for card in topology["npus"]]
    others = 2 if isinstance(whole, str) else 1  # a part of a plan is compared with that, parts of a refused one with each other
    attempts = [attempt(shuffled, npus=details.choices(ids, k=details.randint(0, 6)), **arguments) for _part in range(others)]
    parts = [made for made in (whole, *attempts) if not isinstance(made, str)]
    assert len(parts) == 2 or isinstance(whole, str)
    entries = {}
    for made in parts:
        for entry in made["npus"]:
            assert entries.setdefault(entry["slice"], entry) == entry
        assert made["quality"] == parts[0]["quality"]


def the_published_result_says_what_is_wrong_with_it(topology, arguments, repaired):
    arguments = {**arguments, "roles": None}
    made = attempt(topology, **arguments, repair=False)
    if isinstance(made, str):
        assert not list(wrong_sentence(made))
        return
    published = {entry["slice"]: entry["pool"] for entry in made["npus"]}
    sets = {name: cpu_set(pool) for name, pool in published.items()}
    assert made["violations"] or not list(wrong_pools(look(topology, **arguments), sets))
    assert not [problem for sentence in made["violations"] for problem in wrong_sentence(sentence)]
    assert all(sentence.endswith(".") for sentence in made["violations"])
    if not made["violations"] and not isinstance(repaired, str) and not repaired["repaired"]:
        assert published == {entry["slice"]: entry["pool"] for entry in repaired["npus"]}


def a_lost_card_moves_nobody(topology, arguments, before, details):
    lost = details.sample(range(len(topology["npus"])), details.randint(1, len(topology["npus"])))
    others = [dict(card) for place, card in enumerate(topology["npus"]) if place not in lost]
    for kind in ("npu", "gpu"):
        for number, card in enumerate(card for card in others if card["kind"] == kind):
            card["id"] = number
    if len({card["kind"] for card in others}) != len({card["kind"] for card in topology["npus"]}) and arguments["strategy"] == "auto":
        return
    after = plan(bound({**topology, "npus": others}, before), **arguments)
    kept = {entry["pci"]: {**entry, "id": None} for entry in after["npus"]}
    assert kept == {entry["pci"]: {**entry, "id": None} for entry in before["npus"] if entry["pci"] in kept}
    assert len(kept) == len(others)
    assert [entry["pci"] for entry in after["lost"]] == [entry["pci"] for entry in before["npus"] if entry["pci"] not in kept]
    assert any("npu_affinity_replan" in warning for warning in after["warnings"])
    back = plan(bound(topology, after), **arguments)
    assert back["npus"] == before["npus"] and back["lost"] == []


def a_fault_costs_a_pool_at_most_a_core(topology, arguments, before, details):
    """A CPU, a core or a NUMA node goes offline under a plan in force, and comes back."""
    seen = look(topology, **arguments)
    cores, uniform = seen.cores, len({len(core & seen.usable) for core in seen.units(seen.usable)} if seen.smt == "cores" else {1}) == 1
    cpu = details.choice(sorted(cores))
    node = next((cpu_set(node["cpus"]) for node in topology["numa"] if cpu in cpu_set(node["cpus"])), frozenset())
    offline = details.choice([frozenset([cpu]), cores[cpu], node]) or cores[cpu]
    after = after_fault(topology, arguments, before, offline)
    if after is None:
        return
    pools = [[cpu_set(entry["pool"]) for entry in made["npus"]] for made in (before, after)]
    if not offline & frozenset().union(*pools[0]):
        assert pools[0] == pools[1], f"{offline} is in no pool"
    elif offline != node and all(map(seen.knows, topology["npus"])):
        lost = [len(old) - len(new) for old, new in zip(*pools, strict=True)]
        core = len(cores[cpu]) if uniform else 2 * max(map(len, cores.values()))
        assert max(lost) <= core, f"{offline} costs more than a core"
        assert min(lost) > -(core if seen.smt == "cores" else 1), f"a pool grows by a core because {offline} is gone"
        taken = sum(len(old - offline - new) for old, new in zip(*pools, strict=True))
        assert not uniform or taken <= len(cores[cpu]), f"{offline} takes {taken} CPUs from others"
    back = after_fault(topology, arguments, after, frozenset())
    if offline != node and uniform:
        assert all(new <= cpu_set(entry["pool"]) for new, entry in zip(pools[1], back["npus"], strict=True))


def after_fault(topology, arguments, before, offline):
    """Return the plan that follows another one on a host with CPUs offline; None where no CPU is left to divide, or too few are."""
    changed = copy.deepcopy(topology)
    switch_off(changed, set(offline) | set(cpu_set(topology["cpus"]["offline"])))
    changed["cpus"]["isolated"] = compress(cpu_set(topology["cpus"]["isolated"]) - offline)
    made = attempt(bound(changed, before), **arguments)
    if isinstance(made, str):
        assert offline, made
        return None
    assert defects(changed, made, **{**arguments, "housekeeping": made["housekeeping"]}) == []
    return made


@pytest.mark.parametrize("name", ["topo_affinity", "global_slice"])
def test_a_named_rule_without_defects_stays_as_published(name, seed):
    kept = remote = 0
    for number in range(100):
        details = Random(f"{seed} {number}")
        nodes = details.choice([2, 4, 8])
        topology = host([details.randrange(nodes) for _npu in range(details.choice([2, 4, 8]))], nodes=nodes)
        published = attempt(topology, strategy=name, repair=False)
        if not isinstance(published, str) and not published["violations"]:
            assert pools(plan(topology, strategy=name)) == pools(published)
            kept += 1
            remote += published["quality"]["local"] < 1 and pools(plan(topology)) != pools(published)
    assert kept > 15 and remote > 3, "machines on which auto takes other pools are among them"
