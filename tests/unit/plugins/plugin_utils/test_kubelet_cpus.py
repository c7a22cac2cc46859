# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet hands out, on machines small enough to follow by hand, what holds on all of them, and how hints of nodes are merged."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask, mask_of, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, Units, allocate, distributed, packed, reserve
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES, Hint, admits
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import best_nodes, least_nodes, merge, units_of


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
L40S = units_of(host([0] * 4 + [1] * 4, nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu"))
ASKEW = units(["0-3", "4-7"], caches=["0-1", "2-5", "6-7"])

FULL = PolicyOptions(full_pcpus_only=True)
ACROSS = PolicyOptions(distribute_cpus_across_numa=True)
NUMA = PolicyOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)
CORES = PolicyOptions(distribute_cpus_across_cores=True)
CACHE, SOCKET = PolicyOptions(prefer_align_cpus_by_uncorecache=True), PolicyOptions(align_by_socket=True)
SPREAD, BY_CACHE = {"spread": True}, {"by_cache": True}
# What chooses, the machine, its free CPUs, how many are wanted, and how.
CHOSEN = [
    ("nothing", packed, PAIR, "0-11", 0, {}, ""),
    ("a core", packed, PAIR, "0-11", 2, {}, "0,6"),
    ("a core and a thread of the next one", packed, PAIR, "0-11", 3, {}, "0-1,6"),
    ("a thread where a core is broken already", packed, PAIR, "0-6,8-11", 1, {}, "1"),
    ("the node that is fuller comes first", packed, PAIR, "1,3-5,7,9-11", 2, {}, "1,7"),
    ("unless only the other one has a whole core", packed, PAIR, "0-2,4-5,9-11", 2, {}, "4,10"),
    ("a whole node", packed, PAIR, "0-11", 6, {}, "0-2,6-8"),
    ("the node that is whole", packed, PAIR, "1-11", 6, {}, "3-5,9-11"),
    ("a node and a core", packed, PAIR, "0-11", 8, {}, "0-3,6-9"),
    ("a socket of two nodes", packed, QUAD, "0-7", 4, {}, "0-3"),
    ("a node in the socket that is fuller", packed, QUAD, "1-7", 2, {}, "2-3"),
    ("what is left of that socket", packed, QUAD, "1-7", 3, {}, "1-3"),
    ("spread over cores", packed, PAIR, "0-11", 4, SPREAD, "0-2,6"),
    ("spread stops at nothing but whole nodes", packed, PAIR, "0-11", 7, SPREAD, "0-3,6-8"),
    ("by number where caches do not count", packed, CACHES, "1-7", 4, {}, "1-4"),
    ("a whole cache", packed, CACHES, "1-7", 4, BY_CACHE, "4-7"),
    ("part of the first cache that has enough", packed, CACHES, "2-7", 3, BY_CACHE, "4-6"),
    ("caches that have too little each", packed, CACHES, "1-3,5-7", 4, BY_CACHE, "1-3,5"),
    ("a core and a half of a cache", packed, THREADS, "0-7", 3, BY_CACHE, "0-1,4"),
    ("a core and a half of the cache that has them", packed, THREAD_CACHES, "0,2-4,6-7", 3, BY_CACHE, "2-3,6"),
    ("a cache across two nodes is taken once", packed, ASKEW, "2-5", 4, BY_CACHE, "2-5"),
    ("with one thread offline, the core of one thread comes first", packed, ONE_OFFLINE, "0-4", 2, {}, "0,2"),
    ("what one node can give comes from one", distributed, PAIR, "0-11", 6, {"group": 1}, "0-2,6-8"),
    ("halves of two nodes", distributed, PAIR, "0-11", 8, {"group": 2}, "0-1,3-4,6-7,9-10"),
    ("the remainder is a core of one node", distributed, PAIR, "0-11", 10, {"group": 2}, "0-4,6-10"),
    ("threads where groups do not matter", distributed, PAIR, "0-11", 7, {"group": 1}, "0-1,3-4,6-7,9"),
    ("no groups of two in seven: packed", distributed, PAIR, "0-11", 7, {"group": 2}, "0-3,6-8"),
    ("the first of the best pairs", distributed, QUAD, "0-7", 4, {"group": 1}, "0-3"),
    ("a node that has too little is passed over", distributed, QUAD, "0-2,4-7", 4, {"group": 1}, "0-1,4-5"),
    ("the remainder goes in turns", distributed, QUAD, "0-7", 3, {"group": 1}, "0-2"),
    ("the fuller node keeps what it has", distributed, QUAD, "0,2-7", 1, {"group": 1}, "2"),
    ("no equal parts: packed", distributed, PAIR, "0,3-5,9-11", 7, {"group": 1}, "0,3-5,9-11"),
    ("five of eight cards get 120 CPUs of each node", distributed, L40S, "0-383", 240, {}, "0-59,96-155,192-251,288-347"),
    ("or 192 and 48", packed, L40S, "0-383", 240, {}, "0-119,192-311"),
    ("packed without options", allocate, PAIR, "0-11", 3, {}, "0-1,6"),
    ("across NUMA nodes in whole cores", allocate, PAIR, "0-11", 10, {"options": NUMA}, "0-4,6-10"),
    ("across NUMA nodes in threads", allocate, PAIR, "0-11", 10, {"options": ACROSS}, "0-7,9-10"),
    ("across cores", allocate, PAIR, "0-11", 2, {"options": CORES}, "0-1"),
    ("inside a cache", allocate, CACHES, "1-7", 4, {"options": CACHE}, "4-7"),
    ("what is reserved is not given away", allocate, PAIR, "0-11", 2, {"options": FULL, "reserved": mask("0,6")}, "1,7"),
    ("the topology manager's node first", allocate, PAIR, "0-11", 2, {"options": FULL, "nodes": [1]}, "3,9"),
    ("then others", allocate, PAIR, "0-11", 8, {"options": FULL, "nodes": [1]}, "0,3-6,9-11"),
    ("a node without CPUs helps nobody", allocate, PAIR, "0-11", 2, {"options": FULL, "nodes": [7]}, "0,6"),
    ("one node of a socket", allocate, QUAD, "0-7", 3, {"nodes": [3]}, "4,6-7"),
    ("the socket around the node", allocate, QUAD, "0-7", 3, {"options": SOCKET, "nodes": [3]}, "4-6"),
]


@pytest.mark.parametrize("choose, machine, free, count, how, expected", [row[1:] for row in CHOSEN], ids=[row[0] for row in CHOSEN])
def test_which_cpus_are_given_away(choose, machine, free, count, how, expected):
    assert text_of(choose(machine, mask(free), count, **how)) == expected


@pytest.mark.parametrize("quantity, expected", [("1500m", "0,6"), ("2", "0,6"), (3, "0-1,6"), ("100m", "0"), (0.5, "0"), ("0", "")])
def test_reserve(quantity, expected):
    assert text_of(reserve(PAIR, quantity)) == expected


TOO_FEW = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs"
NOT_BOTH = "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"
MORE_SOCKETS = "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
TWICE, ONCE = "The caches of the machine hold CPUs 0-1, some of them twice", "must be in exactly one of them"
REFUSED = [
    (lambda: packed(PAIR, mask("0-3"), 5), "not enough cpus available to satisfy request: requested=5, available=4"),
    (lambda: distributed(PAIR, mask("0-3"), 6, 2), "not enough cpus available to satisfy request: requested=6, available=4"),
    (lambda: allocate(PAIR, mask("0-11"), 3, FULL), "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (lambda: allocate(PAIR, mask("0-11"), 10, FULL, reserved=mask("0-1")), f"{TOO_FEW} = 8, requested CPUs = 10, CPUs per core = 2"),
    (lambda: PolicyOptions(full_pcpus_only=True, distribute_cpus_across_cores=True), NOT_BOTH),
    (lambda: allocate(units(["0-3"], ["0-1", "2-3"]), mask("0-3"), 1, SOCKET), MORE_SOCKETS),
    (lambda: reserve(PAIR, "two"), "reserved CPUs: 'two' is not a quantity; expected e.g. 1500m or 2"),
    (lambda: reserve(PAIR, -1), "reserved CPUs: -1 is not a quantity; expected e.g. 1500m or 2"),
    (lambda: units(["0-3"], caches=["0-2"]), f"The caches of the machine hold CPUs 0-2; every online CPU, that is 0-3, {ONCE}"),
    (lambda: Units({0: 3}, {0: 3}, {0: 3, 1: 2}, {0: 1, 1: 2}), f"{TWICE}; every online CPU, that is 0-1, {ONCE}"),
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


def test_sockets_come_from_facts_and_align_by_socket_fills_one():
    topology = {**host([0, 1, 2, 3], nodes=4, cores=4), "kubelet": None}
    topology["cpus"] = {**topology["cpus"], "sockets": ["0-7", "8-15"]}
    units = units_of(topology)
    assert units.of["sockets"] == {0: 0xFF, 1: 0xFF00}
    assert allocate(units, units.cpus, 6, PolicyOptions(align_by_socket=True), nodes=[2]) == 0x3F00


NEAR_PAIRS = [[10, 11, 12, 12], [11, 10, 12, 12], [12, 12, 10, 11], [12, 12, 11, 10]]


def hints(*texts):
    """Return hints of texts such as ``01+`` (nodes 0 and 1, preferred) or ``*-`` (any node, not preferred)."""
    return [Hint(None if text[0] == "*" else sum(1 << int(node) for node in text[:-1]), text[-1] == "+") for text in texts]


def cpu_hints(request, capacity, free):
    """Return every set of nodes with enough free CPUs; preferred are those as wide as the CPUs of empty nodes allow."""
    least = least_nodes(request, capacity)
    hints = []
    for width in range(1, len(capacity) + 1):
        for nodes in combinations(range(len(capacity)), width):
            if sum(free[node] for node in nodes) >= request:
                hints.append(Hint(sum(1 << node for node in nodes), width == least))
    return hints


MERGED = [
    ("nobody has an opinion", [None, None], "best-effort", [0, 1, 2, 3], True),
    ("nobody has an opinion, and one node is not a restriction", [None], "single-numa-node", None, True),
    ("one resource, the narrower hint", [hints("0+", "01-")], "restricted", [0], True),
    ("both name node 1", [hints("0+", "1+"), hints("1+")], "restricted", [1], True),
    ("a preferred wide match beats a narrow one that is not", [hints("01+", "0-"), hints("01+", "0-")], "best-effort", [0, 1], True),
    ("nothing in common", [hints("0+"), hints("1+")], "best-effort", [0, 1, 2, 3], False),
    ("a resource that cannot be placed", [[]], "best-effort", [0, 1, 2, 3], False),
    ("the widest of the minima is aimed at", [hints("012-", "01-"), hints("12-", "0-")], "best-effort", [1, 2], False),
    ("single: a wide hint is none", [hints("01+")], "single-numa-node", None, False),
    ("none does not look", [[]], "none", None, True),
]


@pytest.mark.parametrize("resources, policy, nodes, preferred", [row[1:] for row in MERGED], ids=[row[0] for row in MERGED])
def test_merging(resources, policy, nodes, preferred):
    merged = merge(resources, 0b1111, policy)
    assert (None if merged.nodes is None else cpus_of(merged.nodes), merged.preferred) == (nodes, preferred)
    assert admits(policy, merged) == (preferred or policy in ("none", "best-effort"))


def test_the_closest_of_equally_wide_sets():
    pairs = [hints("12+", "23+")]
    assert merge(pairs, 0b1111, "restricted").nodes == 0b0110
    assert merge(pairs, 0b1111, "restricted", NEAR_PAIRS).nodes == 0b1100


@st.composite
def fleets(draw):
    count = draw(st.integers(1, 5))
    capacity = draw(st.lists(st.integers(1, 8), min_size=count, max_size=count))
    free = [draw(st.integers(0, cpus)) for cpus in capacity]
    chips = draw(st.none() | st.builds(Hint, st.integers(1, (1 << count) - 1), st.booleans()))
    distances = draw(st.none() | st.lists(st.lists(st.integers(10, 13), min_size=count, max_size=count), min_size=count, max_size=count))
    return draw(st.integers(0, 20)), capacity, free, chips, distances


@given(fleets())
@settings(max_examples=100, deadline=None)
def test_the_hints_that_decide_give_what_all_hints_give(machine):
    request, capacity, free, chips, distances = machine
    everything = (1 << len(capacity)) - 1
    resources = [None if chips is None else [chips], cpu_hints(request, capacity, free) if request else None]
    for policy in POLICIES[1:]:
        best = best_nodes(request, capacity, free, policy, chips, distances)
        assert best == (merge(resources, everything, policy, distances) if request or chips else Hint(None, True)), policy


@given(st.integers(1, 30), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_the_least_number_of_nodes_by_search(request_, counts):
    enough = [bin(nodes).count("1") for nodes in range(1, 1 << len(counts)) if sum(counts[bit] for bit in cpus_of(nodes)) >= request_]
    assert least_nodes(request_, counts) == min(enough, default=len(counts))
