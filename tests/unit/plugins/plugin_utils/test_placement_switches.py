# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a job gets by its switches. Four switches of four hosts; host ``b2`` is the one at position 2 of switch b."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.switches import (
    EXCLUSIVE,
    LARGE,
    NORMAL,
    SCHEMAS,
    SHARED,
    VERSIONS,
    Switch,
    select,
)


def switches(free, **states):
    """Return switches of a text such as ``a0123 b01``: their free hosts by position."""
    made = []
    for word in free.split():
        name = word[0]
        made.append(
            Switch(
                name, [f"{name}{position}" for position in range(4)], {f"{name}{position}" for position in word[1:]}, **states.get(name, {})
            )
        )
    return made


MOST_FREE = "a0123 b0123 c0123 d01"
"""Fourteen free hosts, three full switches."""


@pytest.mark.parametrize(
    ("story", "version", "schema", "free", "replicas", "hosts"),
    [
        ("small: the switch with the fewest free hosts", "1.0", NORMAL, "a0123 b012 c01", 2, "c0 c1"),
        ("twelve on three full switches", "1.0", NORMAL, MOST_FREE, 12, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3"),
        ("five: a full switch and the first of the next", "1.0", LARGE, MOST_FREE, 5, "a0 a1 a2 a3 b0"),
        ("thirteen: hosts at the same positions", "1.0", LARGE, MOST_FREE, 13, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3 d0"),
        ("three hosts at one position each are a switch of their own", "1.0", NORMAL, "a01 b0 c0", 3, None),
        ("normal jobs then take any hosts", "1.0", NORMAL, "a01 b23", 4, "a0 a1 b2 b3"),
        ("single layer: one switch or nothing", "single_layer", NORMAL, "a012 b0123", 3, "a0 a1 a2"),
        ("2.0 small: free switches last", "2.0", NORMAL, "a012 b0123", 3, "a0 a1 a2"),
        ("2.0 large: whole free switches", "2.0", LARGE, "a0123 b0123 c01", 10, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1"),
        ("2.0 large: part of a free one becomes shared", "2.0", LARGE, "a0123 b0123", 6, "a0 a1 a2 a3 b0 b1"),
    ],
)
def test_hosts_of_a_job(story, version, schema, free, replicas, hosts):
    if hosts is None:
        assert len(select(switches(free), replicas, version, schema, 4)) == replicas
    else:
        assert select(switches(free), replicas, version, schema, 4) == hosts.split(), story


@pytest.mark.parametrize(
    ("story", "version", "schema", "free", "replicas", "words"),
    [
        ("fifteen of fourteen", "1.0", NORMAL, MOST_FREE, 15, "15 tasks are wanted, and 14 hosts on usable switches are free"),
        ("fifteen of fourteen", "2.0", NORMAL, MOST_FREE, 15, "not enough node for normal job"),
        ("positions do not match", "1.0", LARGE, "a01 b01 c01 d01", 8, "position number 4 of 4 has 0"),
        ("a small large-model job fits one switch", "1.0", LARGE, "a0 b1 c2", 2, "no switch has 2 free hosts"),
        ("single layer", "single_layer", NORMAL, MOST_FREE, 5, "job's task number is bigger than torCount: 5 tasks"),
        ("2.0", "2.0", LARGE, "a0123 b0", 6, "set tor failed by not enough nodes: 6 tasks are wanted, free and shared switches can take 5"),
    ],
)
def test_refusals(story, version, schema, free, replicas, words):
    with pytest.raises(ValueError, match=".") as refused:
        select(switches(free), replicas, version, schema, 4)
    assert words in str(refused.value), story


def test_rule_2_takes_exclusive_unhealthy_shared_free_in_order():
    free = "a012 b012 c012 d0123"
    states = {"a": {}, "b": {"shared": SHARED}, "c": {"shared": SHARED, "unhealthy": 1}, "d": {"shared": EXCLUSIVE}}
    taken = []
    for _job in range(4):
        taken.append(select(switches(free, **states), 3, "2.0", LARGE, 4)[0][0])
        free = " ".join(word for word in free.split() if word[0] != taken[-1])
    assert taken == ["d", "c", "b", "a"]


def test_rest_of_a_large_job_takes_smallest_sufficient_switches():
    states = {"b": {"shared": SHARED}, "c": {"shared": SHARED}, "d": {"shared": SHARED}}
    assert select(switches("a0123 b01 c012 d0123", **states), 6, "2.0", LARGE, 4) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert select(switches("a0123 b0 c01 d012", **states), 9, "2.0", LARGE, 4)[4:] == ["c0", "c1", "d0", "d1", "d2"]


def test_a_switch_that_another_job_spans_must_hold_the_job_whole():
    spanned = {"a": {"spanned_by": (LARGE,)}}
    assert select(switches("a0123 b0123 c0123", **spanned), 8, "1.0", LARGE, 4)[0] == "b0"
    assert select(switches("a012 b0123", **spanned), 3, "1.0", LARGE, 4) == ["a0", "a1", "a2"]
    only_normal = {"a": {"spanned_by": (NORMAL,)}}
    assert select(switches("a0123 b0123 c0123", **only_normal), 8, "1.0", NORMAL, 4)[0] == "a0"


@given(
    st.lists(st.sets(st.integers(0, 3), max_size=4), min_size=1, max_size=5),
    st.integers(1, 20),
    st.sampled_from(VERSIONS),
    st.sampled_from(SCHEMAS),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=5, max_size=5),
)
def test_a_job_gets_different_free_hosts_or_a_sentence(free, replicas, version, schema, states):
    made = [
        Switch(f"s{number}", [f"s{number}-{place}" for place in range(4)], {f"s{number}-{place}" for place in places}, *states[number])
        for number, places in enumerate(free)
    ]
    try:
        hosts = select(made, replicas, version, schema, 4)
    except ValueError as refused:
        assert str(refused)
        return
    assert len(set(hosts)) == len(hosts) == replicas
    assert set(hosts) <= {host for switch in made for host in switch.free}
