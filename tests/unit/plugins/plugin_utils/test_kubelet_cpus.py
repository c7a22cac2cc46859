# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet hands out, on machines small enough to follow by hand, what holds on all of them, and plans by its rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask, mask_of, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, Units, allocate, distributed, packed, reserve
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan


def units(nodes, sockets=None, caches=None, siblings=0, cpus=None):
    """Return a machine from cpulists. ``siblings``: CPU c and c + siblings are a core; 0 for cores of one thread."""
    nodes, sockets, caches = (dict(enumerate(map(mask, lists))) for lists in (nodes, sockets or nodes, caches or sockets or nodes))
    cores = {}
    for cpu in cpus_of(mask(cpus)) if cpus else [cpu for node in nodes.values() for cpu in cpus_of(node)]:
        core = cpu % siblings if siblings else cpu
        cores[core] = cores.get(core, 0) | 1 << cpu
    return Units(nodes, sockets, caches, cores)


PAIR = units(["0-2,6-8", "3-5,9-11"], siblings=6)
"""Two sockets, each a NUMA node, of three cores with threads c and c+6."""
QUAD = units(["0-1", "2-3", "4-5", "6-7"], ["0-3", "4-7"])
"""Two sockets of two NUMA nodes of two CPUs."""
CACHES = units(["0-7"], caches=["0-3", "4-7"])
THREADS = units(["0-7"], siblings=4)
ONE_OFFLINE = units(["0-4"], siblings=3)
"""Three cores of two threads, of which CPU 5 is offline."""
THREAD_CACHES = units(["0-7"], caches=["0-1,4-5", "2-3,6-7"], siblings=4)
ASKEW = units(["0-3", "4-7"], caches=["0-1", "2-5", "6-7"])

PACKED = [
    ("nothing", PAIR, "0-11", 0, {}, ""),
    ("a core", PAIR, "0-11", 2, {}, "0,6"),
    ("a core and a thread of the next one", PAIR, "0-11", 3, {}, "0-1,6"),
    ("a thread where a core is broken already", PAIR, "0-6,8-11", 1, {}, "1"),
    ("the node that is fuller comes first", PAIR, "1,3-5,7,9-11", 2, {}, "1,7"),
    ("unless only the other one has a whole core", PAIR, "0-2,4-5,9-11", 2, {}, "4,10"),
    ("a whole node", PAIR, "0-11", 6, {}, "0-2,6-8"),
    ("the node that is whole", PAIR, "1-11", 6, {}, "3-5,9-11"),
    ("a node and a core", PAIR, "0-11", 8, {}, "0-3,6-9"),
    ("a socket of two nodes", QUAD, "0-7", 4, {}, "0-3"),
    ("a node in the socket that is fuller", QUAD, "1-7", 2, {}, "2-3"),
    ("what is left of that socket", QUAD, "1-7", 3, {}, "1-3"),
    ("spread over cores", PAIR, "0-11", 4, {"spread": True}, "0-2,6"),
    ("spread stops at nothing but whole nodes", PAIR, "0-11", 7, {"spread": True}, "0-3,6-8"),
    ("by number where caches do not count", CACHES, "1-7", 4, {}, "1-4"),
    ("a whole cache", CACHES, "1-7", 4, {"by_cache": True}, "4-7"),
    ("part of the first cache that has enough", CACHES, "2-7", 3, {"by_cache": True}, "4-6"),
    ("caches that have too little each", CACHES, "1-3,5-7", 4, {"by_cache": True}, "1-3,5"),
    ("a core and a half of a cache", THREADS, "0-7", 3, {"by_cache": True}, "0-1,4"),
    ("a core and a half of the cache that has them", THREAD_CACHES, "0,2-4,6-7", 3, {"by_cache": True}, "2-3,6"),
    ("a cache across two nodes is taken once", ASKEW, "2-5", 4, {"by_cache": True}, "2-5"),
    ("with one thread offline, the core of one thread comes first", ONE_OFFLINE, "0-4", 2, {}, "0,2"),
]


@pytest.mark.parametrize("machine, available, count, options, expected", [row[1:] for row in PACKED], ids=[row[0] for row in PACKED])
def test_packed(machine, available, count, options, expected):
    assert text_of(packed(machine, mask(available), count, **options)) == expected


SPREAD = [
    ("what one node can give comes from one", PAIR, "0-11", 6, 1, "0-2,6-8"),
    ("halves of two nodes", PAIR, "0-11", 8, 2, "0-1,3-4,6-7,9-10"),
    ("the remainder is a core of one node", PAIR, "0-11", 10, 2, "0-4,6-10"),
    ("threads where groups do not matter", PAIR, "0-11", 7, 1, "0-1,3-4,6-7,9"),
    ("no groups of two in seven: packed", PAIR, "0-11", 7, 2, "0-3,6-8"),
    ("the first of the best pairs", QUAD, "0-7", 4, 1, "0-3"),
    ("a node that has too little is passed over", QUAD, "0-2,4-7", 4, 1, "0-1,4-5"),
    ("the remainder goes in turns", QUAD, "0-7", 3, 1, "0-2"),
    ("the fuller node keeps what it has", QUAD, "0,2-7", 1, 1, "2"),
    ("no equal parts: packed", PAIR, "0,3-5,9-11", 7, 1, "0,3-5,9-11"),
]


@pytest.mark.parametrize("machine, available, count, group, expected", [row[1:] for row in SPREAD], ids=[row[0] for row in SPREAD])
def test_distributed(machine, available, count, group, expected):
    assert text_of(distributed(machine, mask(available), count, group)) == expected


FULL = PolicyOptions(full_pcpus_only=True)
NUMA = PolicyOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)
GIVEN = [
    ("packed without options", PAIR, "0-11", 3, None, {}, "0-1,6"),
    ("across NUMA nodes in whole cores", PAIR, "0-11", 10, NUMA, {}, "0-4,6-10"),
    ("across NUMA nodes in threads", PAIR, "0-11", 10, PolicyOptions(distribute_cpus_across_numa=True), {}, "0-7,9-10"),
    ("across cores", PAIR, "0-11", 2, PolicyOptions(distribute_cpus_across_cores=True), {}, "0-1"),
    ("inside a cache", CACHES, "1-7", 4, PolicyOptions(prefer_align_cpus_by_uncorecache=True), {}, "4-7"),
    ("what is reserved is not given away", PAIR, "0-11", 2, FULL, {"reserved": mask("0,6")}, "1,7"),
    ("the topology manager's node first", PAIR, "0-11", 2, FULL, {"nodes": [1]}, "3,9"),
    ("then others", PAIR, "0-11", 8, FULL, {"nodes": [1]}, "0,3-6,9-11"),
    ("a node without CPUs helps nobody", PAIR, "0-11", 2, FULL, {"nodes": [7]}, "0,6"),
    ("one node of a socket", QUAD, "0-7", 3, None, {"nodes": [3]}, "4,6-7"),
    ("the socket around the node", QUAD, "0-7", 3, PolicyOptions(align_by_socket=True), {"nodes": [3]}, "4-6"),
]


@pytest.mark.parametrize("machine, shared, count, options, more, expected", [row[1:] for row in GIVEN], ids=[row[0] for row in GIVEN])
def test_allocate(machine, shared, count, options, more, expected):
    assert text_of(allocate(machine, mask(shared), count, options, **more)) == expected


@pytest.mark.parametrize("quantity, expected", [("1500m", "0,6"), ("2", "0,6"), (3, "0-1,6"), ("100m", "0"), (0.5, "0"), ("0", "")])
def test_reserve(quantity, expected):
    assert text_of(reserve(PAIR, quantity)) == expected


ONCE = "must be in exactly one of them"
REFUSED = [
    (lambda: packed(PAIR, mask("0-3"), 5), "not enough cpus available to satisfy request: requested=5, available=4"),
    (lambda: distributed(PAIR, mask("0-3"), 6, 2), "not enough cpus available to satisfy request: requested=6, available=4"),
    (lambda: allocate(PAIR, mask("0-11"), 3, FULL), "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (
        lambda: allocate(PAIR, mask("0-11"), 10, FULL, reserved=mask("0-1")),
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, CPUs per core = 2",
    ),
    (
        lambda: PolicyOptions(full_pcpus_only=True, distribute_cpus_across_cores=True),
        "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
    ),
    (
        lambda: allocate(units(["0-3"], ["0-1", "2-3"]), mask("0-3"), 1, PolicyOptions(align_by_socket=True)),
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
    ),
    (lambda: reserve(PAIR, "two"), "reserved CPUs: 'two' is not a quantity; expected e.g. 1500m or 2"),
    (lambda: reserve(PAIR, -1), "reserved CPUs: -1 is not a quantity; expected e.g. 1500m or 2"),
    (lambda: units(["0-3"], caches=["0-2"]), f"The caches of the machine hold CPUs 0-2; every online CPU, that is 0-3, {ONCE}"),
    (
        lambda: Units({0: 3}, {0: 3}, {0: 3, 1: 2}, {0: 1, 1: 2}),
        f"The caches of the machine hold CPUs 0-1, some of them twice; every online CPU, that is 0-1, {ONCE}",
    ),
    (lambda: Units({}, {}, {}, {}), f"The nodes of the machine hold CPUs none; every online CPU, that is none, {ONCE}"),
]


@pytest.mark.parametrize("call, sentence", REFUSED, ids=[sentence for call, sentence in REFUSED])
def test_refusals(call, sentence):
    with pytest.raises(ValueError) as refusal:
        call()
    assert str(refusal.value) == sentence


@st.composite
def machines(draw):
    """Return a regular machine, with sockets of several nodes or nodes of several sockets, siblings near or far."""
    outer, inner, cores, threads = (draw(st.integers(1, most)) for most in (3, 3, 4, 2))
    near, nodes_first = draw(st.booleans()), draw(st.booleans())
    total = outer * inner * cores
    of = {core: mask_of(core * threads + n if near else core + n * total for n in range(threads)) for core in range(total)}
    small = {number: sum(of[core] for core in range(number * cores, (number + 1) * cores)) for number in range(outer * inner)}
    large = {number: sum(small[number * inner + part] for part in range(inner)) for number in range(outer)}
    nodes, sockets = (large, small) if nodes_first else (small, large)
    return Units(nodes, sockets, draw(st.sampled_from([small, large])), {cpus_of(cpus)[0]: cpus for cpus in of.values()})


@settings(deadline=None)
@given(data=st.data(), machine=machines())
def test_the_count_is_exact_and_cores_are_split_only_if_needed(data, machine):
    available = mask_of(data.draw(st.sets(st.sampled_from(cpus_of(machine.cpus)))))
    count = data.draw(st.integers(0, available.bit_count()))
    threads = machine.threads_per_core
    spread, by_cache = data.draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    group = data.draw(st.sampled_from([1, threads]))
    for chosen in (packed(machine, available, count, spread, by_cache), distributed(machine, available, count, group, spread)):
        assert chosen.bit_count() == count
        assert not chosen & ~available
    whole = sum(cpus for cpus in machine.of["cores"].values() if not cpus & ~available)
    if count % threads == 0 and count <= whole.bit_count():
        chosen = packed(machine, available, count, by_cache=False)
        assert machine.around("cores", chosen) == chosen
        across = distributed(machine, whole, count, threads)
        assert machine.around("cores", across) == across


@settings(deadline=None, max_examples=17)
@given(data=st.data(), machine=machines())
def test_distributing_uses_the_fewest_nodes_in_equal_parts(data, machine):
    """On an idle machine: the parts of the nodes taken differ by one group at most, and one node less would be too small."""
    threads = machine.threads_per_core
    count = data.draw(st.integers(1, len(machine.of["cores"]))) * threads
    chosen = distributed(machine, machine.cpus, count, threads)
    parts = [part for cpus in machine.of["nodes"].values() if (part := (cpus & chosen).bit_count())]
    assert max(parts) - min(parts) <= threads
    assert (len(parts) - 1) * max(map(int.bit_count, machine.of["nodes"].values())) < count


TWO = host([1, 0, 1], nodes=2, cores=10)
SMT = host([1, 0], nodes=2, cores=4, threads=2, numbering="far")
L40S = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu")


@pytest.mark.parametrize(
    ("strategy", "topology", "options", "pools"),
    [
        ("packed", TWO, {}, ["0-5", "6-11", "12-17"]),
        ("distributed", TWO, {}, ["0-5", "10-15", "6-8,16-18"]),
        ("packed", SMT, {}, ["0-3,8-11", "4-7,12-15"]),
        ("packed", SMT, {"housekeeping": 1}, ["1-3,9-11", "5-7,13-15"]),
        ("packed", SMT, {"smt": "threads", "cpus": "0-14"}, ["4-6,12-14,7", "0-3,8-10"]),
    ],
)
def test_pools_by_the_ids_of_the_cards_whatever_their_node(strategy, topology, options, pools):
    made = plan(topology, strategy=strategy, repair=False, min_cpus=1, **options)
    assert made["strategy"] == strategy
    assert [sorted(expand(entry["pool"])) for entry in made["npus"]] == [sorted(expand(pool)) for pool in pools]


def test_a_plan_names_what_is_lost_against_the_cards_own_nodes():
    made = plan(TWO, strategy="packed")
    assert made["quality"]["local"] < 0.6
    assert any("even_split takes no others" in warning for warning in made["warnings"])


def test_too_few_cores_are_told_in_the_kubelets_words():
    with pytest.raises(ValueError, match="not enough cpus available to satisfy request: requested=4, available=2"):
        plan(SMT, strategy="packed", cpus="0,8", repair=False, min_cpus=1)


def test_five_of_eight_cards_get_120_and_120_cpus_or_192_and_48():
    units = units_of(L40S)
    for choose, counts in ((distributed, [120, 120]), (packed, [192, 48])):
        taken = choose(units, units.cpus, 240)
        assert [(taken & cpus).bit_count() for cpus in units.of["nodes"].values()] == counts


def test_sockets_come_from_facts_and_align_by_socket_fills_one():
    topology = {**host([0, 1, 2, 3], nodes=4, cores=4), "kubelet": None}
    topology["cpus"] = {**topology["cpus"], "sockets": ["0-7", "8-15"]}
    units = units_of(topology)
    assert units.of["sockets"] == {0: 0xFF, 1: 0xFF00}
    assert allocate(units, units.cpus, 6, PolicyOptions(align_by_socket=True), nodes=[2]) == 0x3F00
