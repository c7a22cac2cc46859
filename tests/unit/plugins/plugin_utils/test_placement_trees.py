# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network trees: their configuration, the levels of a job, and which groups give its blocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.plugin_utils._placement import trees


def paths(groups, *above):
    """Return the hosts of ``{group: {group: hosts}}``."""
    found = []
    for name, below in groups.items():
        if isinstance(below, int):
            found += [(*above, name, f"{name}-{number}") for number in range(below)]
        else:
            found += paths(below, *above, name)
    return found


TWO = {"g0": {"s0": 4, "s1": 2}, "g1": {"s2": 4, "s3": 4}}
ROWS = [
    ("an exact group first", {"a": 2, "b": 3, "c": 4}, 2, "level1=2", 0, {"a": 2}),
    ("fewest fragments, not fewest groups", {"a": 4, "b": 6, "c": 8}, 8, "level1=4", 0, {"a": 4, "b": 4}),
    ("a group that holds all blocks exactly", {"a": 5, "b": 8}, 8, "level1=4", 0, {"b": 8}),
    ("the reserve is kept", {"a": 4, "b": 5}, 4, "level1=4", 1, {"b": 4}),
    ("unless nothing else is left", {"a": 4, "b": 3}, 4, "level1=4", 1, {"a": 4}),
    ("a group smaller than its reserve", {"a": 1, "b": 5}, 2, "level1=1", 2, {"b": 2}),
    ("one group of level 2 for level 1 alone", TWO, 8, "level1=4", 0, {"s2": 4, "s3": 4}),
    ("several where none holds it", TWO, 12, "level1=4", 0, {"s0": 4, "s2": 4, "s3": 4}),
    ("three levels", {"x": TWO, "y": {"g2": {"s4": 8}}}, 8, "level1=2,level2=4,level3=8", 0, {"s4": 8}),
    ("levels above those of the job", {"x": TWO, "y": {"g2": {"s4": 6}}}, 8, "level1=4,level2=8", 0, {"s2": 4, "s3": 4}),
    ("no group of the size", {"a": 3, "b": 3}, 4, "level1=4", 0, "failed to schedule tasks: 6 hosts can take one, but not 4"),
    ("a tree with too few levels", {"a": 4}, 4, "level1=2,level2=4", 0, "number of levels does not match"),
]


@pytest.mark.parametrize("story, groups, replicas, levels, reserve, expected", ROWS, ids=[row[0] for row in ROWS])
def test_hosts_of_a_job(story, groups, replicas, levels, reserve, expected):
    try:
        taken = [path[-2] for path in trees.place(paths(groups), trees.levels_of(levels, replicas), reserve)]
    except ValueError as refused:
        assert isinstance(expected, str) and expected in str(refused)
    else:
        assert {name: taken.count(name) for name in taken} == expected


LEVEL = {"label": "row", "reservedNode": 1}
CONFIGS = [
    ({"t": {"level1": LEVEL, "level2": {"label": "hall", "reservedNode": 2}}}, {"t": (("hall", "row"), 1)}),
    ('{"t": {"level1": {"label": "row"}}, "gap": {"level2": {"label": "hall"}}}', {"t": (("row",), 0)}),
    ({"t": {"level1": {}}}, "no valid resource config exist"),
    ({"t": 7}, "ummarshal config failed: expected {tree: {level1: {label}}}"),
    ({"t": {"level1": {"label": "row", "reservedNode": "x"}}}, "tree t: reservedNode: expected a number of hosts; got 'x'"),
    ("{", "ummarshal config failed: resource-level-config is not valid JSON"),
    (None, "resource-level-config doesn't exist"),
]


@pytest.mark.parametrize("config, expected", CONFIGS)
def test_trees_of_a_configuration(config, expected):
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=".") as refused:
            trees.trees(config)
        assert str(refused.value).startswith(expected)
    else:
        assert trees.trees(config) == expected


LEVELS = [
    ("level1=3,level2=4", "affinity block level1's value 3 can not be divided by upper level's value 4"),
    ("level1=2,level2=6", "affinity block level2's value 6 can not be divided by upper level's value 8"),
    ("level2=4", "affinity block level1 is not exist"),
    ("level1:2", "config pair is not correct"),
    ("level1=two", "value of pair is not integer"),
    ("level1=0", "value of pair is not integer"),
]


@pytest.mark.parametrize("given_, words", LEVELS)
def test_levels_that_are_no_multiples(given_, words):
    with pytest.raises(ValueError, match=words):
        trees.levels_of(given_, 8)


HALLS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(halls=HALLS, row=st.integers(1, 3), rows=st.integers(1, 2), blocks=st.integers(1, 3), reserve=st.integers(0, 2))
def test_a_job_has_no_place_only_if_its_blocks_have_none(halls, row, rows, blocks, reserve):
    groups = {f"h{hall}": {f"h{hall}r{number}": count for number, count in enumerate(counts)} for hall, counts in enumerate(halls)}
    levels = trees.levels_of(f"level1={row},level2={row * rows}", row * rows * blocks)
    room = sum(sum(count // row for count in counts) // rows for counts in halls)
    hosts = paths(groups) or [("h", "r", "none")]
    try:
        taken = trees.place(hosts, levels, reserve)
    except ValueError:
        assert room < blocks
        return
    assert room >= blocks or not paths(groups)
    assert len(set(taken)) == len(taken) == row * rows * blocks
    for first in range(0, len(taken), row * rows):
        assert len({path[0] for path in taken[first : first + row * rows]}) == 1
    for first in range(0, len(taken), row):
        assert len({path[1] for path in taken[first : first + row]}) == 1
