# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hints of NUMA nodes, merged by the topology manager's rule, and the short cut that placement takes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import (
    POLICIES,
    Hint,
    Ranking,
    admits,
    best_nodes,
    bits_of,
    least_nodes,
    merge,
)

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


@pytest.mark.parametrize(
    ("story", "resources", "policy", "nodes", "preferred"),
    [
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
    ],
)
def test_merging(story, resources, policy, nodes, preferred):
    merged = merge(resources, 0b1111, policy)
    assert (None if merged.nodes is None else bits_of(merged.nodes), merged.preferred) == (nodes, preferred), story
    assert admits(policy, merged) == (preferred or policy in ("none", "best-effort"))


def test_the_closest_of_equally_wide_sets():
    pairs = [hints("12+", "23+")]
    assert merge(pairs, 0b1111, "restricted").nodes == 0b0110
    assert merge(pairs, 0b1111, "restricted", Ranking(NEAR_PAIRS)).nodes == 0b1100


@pytest.mark.parametrize(
    ("story", "request_", "capacity", "free", "expected"),
    [
        ("must come from one node, though none has enough", 11, [16, 16], [7, 10], ["01-"]),
        ("two nodes are the least", 17, [16, 16], [7, 10], ["01+"]),
        ("either node, or both", 4, [4, 4], [4, 4], ["0+", "1+", "01-"]),
        ("more than the host has", 9, [4, 4], [4, 4], []),
    ],
)
def test_hints_for_cpus_by_the_document(story, request_, capacity, free, expected):
    assert sorted(cpu_hints(request_, capacity, free)) == sorted(hints(*expected)), story


@st.composite
def machines(draw):
    count = draw(st.integers(1, 5))
    capacity = draw(st.lists(st.integers(1, 8), min_size=count, max_size=count))
    free = [draw(st.integers(0, cpus)) for cpus in capacity]
    chips = draw(st.none() | st.builds(Hint, st.integers(1, (1 << count) - 1), st.booleans()))
    distances = draw(st.none() | st.lists(st.lists(st.integers(10, 13), min_size=count, max_size=count), min_size=count, max_size=count))
    return draw(st.integers(0, 20)), capacity, free, chips, distances


@given(machines())
@settings(max_examples=100, deadline=None)
def test_the_hints_that_decide_give_what_all_hints_give(machine):
    request, capacity, free, chips, distances = machine
    everything = (1 << len(capacity)) - 1
    ranking = Ranking(distances)
    resources = [None if chips is None else [chips], cpu_hints(request, capacity, free) if request else None]
    for policy in POLICIES[1:]:
        found = best_nodes(request, capacity, free, policy, chips, ranking)
        assert found == (merge(resources, everything, policy, ranking) if request or chips else Hint(None, True)), policy


@given(st.integers(1, 30), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_the_least_number_of_nodes_by_search(request_, counts):
    enough = [bin(nodes).count("1") for nodes in range(1, 1 << len(counts)) if sum(counts[bit] for bit in bits_of(nodes)) >= request_]
    assert least_nodes(request_, counts) == min(enough, default=len(counts))
