# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which free hosts a job gets by switches, SuperPods, racks and network trees, and which sizes of jobs are allowed there."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_hosts import returns

from ansible_collections.npu.affinity.plugins.plugin_utils._placement import request, superpods, switches, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.switches import LARGE, NORMAL, Switch

STATES = {"": {}, "shared": {"shared": 1}, "ill": {"shared": 1, "unhealthy": 1}, "exclusive": {"shared": 2}}
STATES |= {"large": {"spanned_by": (LARGE,)}, "normal": {"spanned_by": (NORMAL,)}, "shared-large": {"shared": 1, "spanned_by": (LARGE,)}}


def read(free, size=4):
    """Return switches of a text such as ``a0123 b01=shared``: their free hosts by position, and their state."""
    made = []
    for word in free.split():
        (name, *places), state = word.partition("=")[0], word.partition("=")[2]
        made.append(Switch(name, [f"{name}{place}" for place in range(size)], {name + place for place in places}, **STATES[state]))
    return made


MOST_FREE = "a0123 b0123 c0123 d01"
"""Fourteen free hosts, three full switches."""
SHARED = "a0123 b01=shared c012=shared d012=shared"
SPANNED = "a0123 b0123 c0123=large"
# The version, the schema, free hosts, tasks, and the hosts that they get or why they get none.
BY_SWITCH = [
    ("small: the switch with the fewest free hosts", "1.0", NORMAL, "a0123 b012 c01", 2, "c0 c1"),
    ("twelve on three full switches", "1.0", NORMAL, MOST_FREE, 12, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3"),
    ("five: a full switch and the first of the next", "1.0", LARGE, MOST_FREE, 5, "a0 a1 a2 a3 b0"),
    ("full switches before others", "1.0", LARGE, "a012 b0123 c0123", 7, "b0 b1 b2 b3 c0 c1 c2"),
    ("thirteen: hosts at the same positions", "1.0", LARGE, MOST_FREE, 13, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3 d0"),
    ("eight: the same positions of two", "1.0", LARGE, "a0123 b012 c3", 8, "a0 a1 a2 a3 b0 b1 b2 c3"),
    ("not enough at one position", "1.0", LARGE, "a0123 b0123", 9, "3 hosts at the same position are needed, and position number 1"),
    ("positions that most switches have free first", "1.0", LARGE, "a123 b123 c0123", 7, "a1 a2 a3 c0 b1 b2 b3"),
    ("three hosts at positions of their own", "1.0", NORMAL, "a01 b2 c2", 3, "b2 a0 a1"),
    ("normal jobs then take any hosts, of the fullest first", "1.0", NORMAL, "a01 b012 c01", 5, "b0 b1 b2 a0 a1"),
    ("fifteen of fourteen", "1.0", NORMAL, MOST_FREE, 15, "15 tasks are wanted, and 14 hosts on usable switches are free"),
    ("positions do not match", "1.0", LARGE, "a01 b01 c01 d01", 8, "2 hosts at the same position are needed, and position number 4"),
    ("last positions match less", "1.0", LARGE, "a012 b012 c01", 9, "2 hosts at the same position are needed, and position number 4"),
    ("a small large-model job fits one switch", "1.0", LARGE, "a0 b1 c2", 2, "no switch has 2 free hosts"),
    ("a switch that a job spans holds others whole", "1.0", LARGE, "a0123=large b0123 c0123", 8, "b0 b1 b2 b3 c0 c1 c2 c3"),
    ("and does that here", "1.0", LARGE, "a012=large b0123", 3, "a0 a1 a2"),
    ("and here", "1.0", LARGE, "a0123=large b012", 4, "a0 a1 a2 a3"),
    ("also next to normal jobs", "1.0", NORMAL, SPANNED, 12, "12 tasks are wanted, and 8 hosts on usable switches are free"),
    ("unless both are normal", "1.0", NORMAL, "a0123=normal b0123", 8, "a0 a1 a2 a3 b0 b1 b2 b3"),
    ("a large one next to a normal one", "1.0", LARGE, "a0123=normal b0123", 8, "position number 4 of 4 has 1"),
    ("single layer: one switch", "single_layer", NORMAL, "a012 b0123", 3, "a0 a1 a2"),
    ("as large as a switch", "single_layer", NORMAL, "a012 b0123", 4, "b0 b1 b2 b3"),
    ("or nothing", "single_layer", NORMAL, MOST_FREE, 5, "job's task number is bigger than torCount: 5 tasks do not fit one switch of 4"),
    ("2.0 small: free switches last", "2.0", NORMAL, "a012 b0123", 3, "a0 a1 a2"),
    ("an exclusive one first", "2.0", LARGE, "a012 b012=shared c012=ill d0123=exclusive", 3, "d0 d1 d2"),
    ("then a shared one that is not healthy", "2.0", LARGE, "a012 b012=shared c0123=ill", 3, "c0 c1 c2"),
    ("then a shared one", "2.0", LARGE, "a012 b0123=shared", 3, "b0 b1 b2"),
    ("small, and no switch has room", "2.0", LARGE, "a01 b01", 3, "no switch has 3 free hosts"),
    ("small and normal on several", "2.0", NORMAL, "a01 b01", 3, "a0 a1 b0"),
    ("2.0 large: whole free switches", "2.0", LARGE, "a0123 b0123 c01", 10, "a0 a1 a2 a3 b0 b1 b2 b3 c0 c1"),
    ("part of a free one becomes shared", "2.0", LARGE, "a0123 b0123", 6, "a0 a1 a2 a3 b0 b1"),
    ("the rest on the smallest shared switch that is enough", "2.0", LARGE, "a0123 b01=shared c012=shared", 6, "a0 a1 a2 a3 b0 b1"),
    ("on a larger one", "2.0", LARGE, SHARED, 7, "a0 a1 a2 a3 c0 c1 c2"),
    ("on two neighbours by size", "2.0", LARGE, "a0123 b0=shared c01=shared d012=shared", 9, "a0 a1 a2 a3 c0 c1 d0 d1 d2"),
    ("on the smallest two that are enough", "2.0", LARGE, SHARED, 9, "a0 a1 a2 a3 b0 b1 c0 c1 c2"),
    ("two shared switches before part of a free one", "2.0", LARGE, SHARED + " e0123", 12, "a0 a1 a2 a3 e0 e1 e2 e3 b0 b1 c0 c1"),
    ("more than two shared switches", "2.0", LARGE, SHARED, 11, "11 tasks are wanted, free and shared switches can take 10"),
    ("not enough", "2.0", LARGE, "a0123 b0", 6, "set tor failed by not enough nodes: 6 tasks are wanted, free and shared"),
    ("ill ones, and those of normal jobs", "2.0", NORMAL, "a01 b01=ill c01=shared d0=shared-large", 6, "a0 a1 b0 b1 c0 c1"),
    ("and no more", "2.0", NORMAL, "a01 b01=ill c01=shared d0=shared-large", 7, "7 tasks are wanted, and 6 hosts may be used"),
    ("fifteen of fourteen by 2.0", "2.0", NORMAL, MOST_FREE, 15, "not enough node for normal job to schedule"),
]


@pytest.mark.parametrize("version, schema, free, tasks, expected", [row[1:] for row in BY_SWITCH], ids=[row[0] for row in BY_SWITCH])
def test_hosts_of_a_job_by_switches(version, schema, free, tasks, expected):
    returns(expected, lambda: " ".join(switches.select(read(free), tasks, version, schema, 4)))


@pytest.mark.parametrize("tasks, expected", [(7, "a0 a1 a2 a3 c0 c1 c2"), (8, "free and shared switches can take 7")])
def test_one_shared_switch_is_used_where_a_job_may_share_one(tasks, expected):
    returns(expected, lambda: " ".join(switches.select(read("a0123 b01=shared c012=shared"), tasks, "2.0", LARGE, 4, 1)))


PLACES = st.lists(st.sets(st.sampled_from("0123"), max_size=4), min_size=1, max_size=5)
HOW = st.tuples(st.sampled_from(switches.VERSIONS), st.sampled_from(switches.SCHEMAS))


@given(PLACES, st.integers(1, 20), HOW, st.lists(st.sampled_from(["", "shared", "ill", "exclusive"]), min_size=5, max_size=5))
def test_a_job_gets_different_free_hosts_or_a_sentence(places, tasks, how, states):
    free = [name + "".join(sorted(found)) for name, found in zip("abcde", places, strict=False)]
    made = read(" ".join(f"{word}={state}" for word, state in zip(free, states, strict=False)))
    everything = {host for switch in made for host in switch.free}
    try:
        hosts = switches.select(made, tasks, *how, 4)
    except ValueError as refused:
        assert str(refused)
        assert how != ("1.0", NORMAL) or len(everything) < tasks
        assert how[0] != "single_layer" or tasks > max(len(switch.free) for switch in made)
        return
    assert len(set(hosts)) == len(hosts) == tasks
    assert set(hosts) <= everything
    assert how[0] != "single_layer" or len({host[0] for host in hosts}) == 1


# Free hosts of SuperPods, blocks, hosts of a block and of the reserve: the SuperPods of the blocks in order.
BLOCKS = [
    ("the document: 18 and 26 are used before 34", {0: 18, 1: 26, 2: 34}, 2, 16, 2, [0, 1]),
    ("the document: with 19, 26 and 34, the exact double wins", {0: 19, 1: 26, 2: 34}, 2, 16, 2, [2, 2]),
    ("a wide one only when needed", {0: 9, 1: 33}, 2, 8, 0, [0, 1]),
    ("the narrowest of wider ones", {0: 41, 1: 33}, 1, 8, 0, [1]),
    ("the reserve goes last, the SuperPod with most left over first", {0: 4, 1: 5}, 2, 4, 2, [1, 0]),
    ("the reserve of one SuperPod can hold several blocks", {0: 4}, 2, 2, 3, [0, 0]),
    ("the document: with 2 in reserve, 3 hosts left over go before 2", {0: 2, 1: 3}, 1, 1, 2, [1]),
    ("the document: with 2 in reserve, 3 hosts left over go before 4", {0: 4, 1: 3}, 1, 1, 2, [1]),
    ("too few blocks", {0: 5, 1: 5}, 3, 4, 0, "total 2: blocks of 4 hosts are wanted, and free are 5 in SuperPod 0, 5 in SuperPod 1"),
    ("no SuperPod", {}, 1, 1, 0, "required 1, total 0: blocks of 1 hosts are wanted, and free are none"),
]


@pytest.mark.parametrize("free, blocks, block, reserve, expected", [row[1:] for row in BLOCKS], ids=[row[0] for row in BLOCKS])
def test_blocks_of_superpods(free, blocks, block, reserve, expected):
    taken = expected if isinstance(expected, str) else [(pod, block) for pod in expected]
    returns(taken, superpods.take_blocks, free, blocks, block, reserve)


def test_pieces_come_from_what_is_left_over_beyond_the_reserve():
    assert superpods.take_blocks({0: 5, 1: 5}, 3, 4, soft=True) == [(0, 4), (1, 4), (0, 1), (1, 1)]
    assert superpods.take_blocks({0: 3, 1: 6, 2: 5}, 2, 4, 2, soft=True) == [(1, 4), (2, 4)]
    assert superpods.take_blocks({0: 1, 1: 3, 2: 2}, 1, 4, 1, soft=True) == [(1, 3), (2, 1)]


@given(st.dictionaries(st.integers(0, 8), st.integers(0, 40), max_size=6), st.integers(1, 6), st.integers(1, 8), st.integers(0, 4))
def test_blocks_are_found_whenever_there_are_enough(free, wanted, block, reserve):
    enough = sum(count // block for count in free.values()) >= wanted
    soft = superpods.take_blocks(free, wanted, block, reserve, soft=True)
    assert sum(hosts for _pod, hosts in soft) == min(wanted * block, sum(free.values())), "soft affinity takes pieces where blocks run out"
    if enough:
        assert superpods.take_blocks(free, wanted, block, reserve) == soft[:wanted]
    else:
        with pytest.raises(ValueError, match="select super pod failed"):
            superpods.take_blocks(free, wanted, block, reserve)
    for number, count in free.items():
        assert sum(hosts for pod, hosts in soft if pod == number) <= count


def hosts_of(text):
    """Return the free hosts of racks, of a text such as ``0.1:4`` for four of rack 1 in SuperPod 0."""
    words = (word.partition(":") for word in text.split())
    return {tuple(map(int, rack.split("."))): int(hosts or 0) for rack, _colon, hosts in words}


# Free hosts of racks, racks that run the service, instances and hosts of each: the racks of the instances in order.
INSIDE = "the 4 hosts of a block are in one SuperPod, on the Atlas 950 in one rack"
INSTANCES = [
    ("a rack of the service, though others have more", "0.0:2 0.1:8 1.0:8", "0.0", 1, 2, "0.0"),
    ("of racks of the service, the one with most free hosts", "0.0:3 0.1:5", "0.0 0.1", 1, 2, "0.1"),
    ("next, a rack in a SuperPod of the service", "0.0:8 1.0:8", "1.9", 1, 2, "1.0"),
    ("then the one with most idle racks", "0.0:8 0.1:7 1.0:8 1.1:8", "0.9 1.9", 1, 2, "1.0"),
    ("then most free hosts", "0.0:5 0.1:4 1.0:6", "0.9 1.9", 1, 2, "1.0"),
    ("then most of the SuperPod", "0.0:5 0.1:1 1.0:5 1.1:3", "0.9 1.9", 1, 2, "1.0"),
    ("instances follow each other", "0.0:5 0.1:8 1.0:7", "", 3, 4, "0.1 0.1 0.0"),
    (
        "none holds one",
        "0.0:3 0.1:3",
        "",
        1,
        4,
        f"required 1 sp-block, got 0: {INSIDE}; free are 3 in SuperPod 0 rack 0, 3 in SuperPod 0 r",
    ),
    (
        "no rack holds the second",
        "0.0:4 1.0:1",
        "",
        2,
        4,
        f"required 2 sp-block, got 1: {INSIDE}; free are 4 in SuperPod 0, 1 in SuperPod 1",
    ),
    ("no hosts", "", "", 1, 4, "free are none"),
    ("a block of less than a host", "0.0:4", "", 1, 0, "invalid spBlock 0 for infer service job"),
]


@pytest.mark.parametrize("free, on, wanted, hosts, expected", [row[1:] for row in INSTANCES], ids=[row[0] for row in INSTANCES])
def test_racks_of_the_instances_of_a_service(free, on, wanted, hosts, expected):
    returns(expected, lambda: " ".join("%d.%d" % rack for rack in superpods.take_instances(hosts_of(free), hosts_of(on), wanted, hosts)))


DOMAINS = "0.0:8 0.16:8 0.17:8 0.18:8 1.0:8 1.1:8 1.2:8 1.3:8 1.16:8"
# Free hosts of racks, tasks, hosts of a block and of a piece, what else: the pieces, or why there are none.
PIECES = [
    ("one rack, the one with the fewest that are enough", "0.0:5 0.1:4 0.2:3", 4, 4, 1, {}, "0.1:4"),
    ("of the smallest SuperPod", "0.0:4 0.1:6 1.0:7", 4, 4, 1, {}, "1.0:4"),
    ("pieces of a block", "0.0:3 0.1:3", 4, 4, 2, {}, "0.1:2 0.0:2"),
    ("the rack that holds the rest, else the fullest", "0.0:4 0.1:6 0.2:3", 9, 9, 1, {}, "0.1:6 0.2:3"),
    ("a rest in no rack", "0.0:3 1.0:6 1.1:6", 12, 4, 4, {}, "1 blocks of 4 hosts, in pieces of 4 inside racks, have no place; free are 3"),
    ("several SuperPods, the fullest first", "0.0:4 1.0:6 1.1:4", 12, 4, 4, {}, "1.1:4 1.0:4 0.0:4"),
    ("too few blocks", "0.0:3 1.0:3", 8, 4, 1, {}, "before scheduling, required sp-block count=2, but total sp-block count=0"),
    ("a piece in one rack", "0.0:3 0.1:3", 4, 4, 4, {}, "not found the 1 count of ra-block: no rack has 4 free hosts"),
    ("blocks that racks cannot hold", "0.0:3 0.1:5", 8, 8, 4, {}, "scheduling failed in MulSuperPodsSchedule strategy: 1 blocks"),
    ("memory over UnifiedBus in a domain of 16 racks", DOMAINS, 24, 8, 8, {"ub_memory": True}, "0.16:8 0.17:8 0.18:8"),
    ("a larger domain", DOMAINS, 32, 8, 8, {"ub_memory": True}, "1.0:8 1.1:8 1.2:8 1.3:8"),
    ("no domain", DOMAINS, 40, 8, 4, {"ub_memory": True, "soft": True}, "scheduling failed in UBMemSchedule strategy"),
    ("more than a domain without that memory", DOMAINS, 40, 40, 8, {}, "1.16:8 1.3:8 1.2:8 1.1:8 1.0:8"),
    ("soft affinity takes any racks", "0.0:3 0.1:1 1.0:2", 6, 3, 2, {"soft": True}, "0.0:3 0.1:1 1.0:2"),
    ("of the fullest SuperPod, the fullest first", "0.0:3 1.0:1 1.1:4", 7, 7, 7, {"soft": True}, "1.1:4 1.0:1 0.0:2"),
]


@pytest.mark.parametrize("free, tasks, block, piece, how, expected", [row[1:] for row in PIECES], ids=[row[0] for row in PIECES])
def test_racks_of_the_atlas_950(free, tasks, block, piece, how, expected):
    pieces = partial(superpods.take_pieces, hosts_of(free), tasks, block, piece, **how)
    returns(expected, lambda: " ".join(f"{pod}.{rack}:{hosts}" for (pod, rack), hosts in pieces()))


COUNTS = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_pieces_of_blocks_stay_in_racks(pods, blocks, piece):
    free = {(pod, rack): count for pod, counts in enumerate(pods) for rack, count in enumerate(counts)}
    fits = sum(sum(count // piece for count in counts) * piece // 4 for counts in pods)
    tasks = blocks * 4
    one_rack = tasks <= 8 and any(count >= tasks for count in free.values())
    try:
        taken = superpods.take_pieces(free, tasks, 4, piece)
    except ValueError:
        assert fits < blocks and not one_rack
        return
    assert fits >= blocks or one_rack
    assert sum(count for _rack, count in taken) == tasks
    for rack in free:
        used = [count for other, count in taken if other == rack]
        assert sum(used) <= free[rack] and all(count % piece == 0 for count in used)


# Tasks, their NPUs, sp-block, ra-block, hosts of a SuperPod, memory over UnifiedBus, and why there is no such job on an Atlas 950.
OF_950 = [
    ((4, 8, 32, 8, 32, False), None),
    ((1, 3, 3, 1, None, False), None),
    ((1, 8, 10, 1, 32, False), "Parameter sp-block(10) is not multiple of node npu (8)"),
    ((5, 8, 32, 1, 32, False), "job require total Pod(5) should be multiple of a sp-block size 4"),
    ((4, 8, 32, 1, 0, False), "Parameter super-pod-size(0) in volcano.yaml is invalid which should be in range [1,1024]"),
    ((4, 8, 32, 1, 2, False), "Parameter spBlock(32/8=4) is bigger than size of super-pod-size(2)"),
    ((16, 8, 128, 128, 32, False), "Parameter ra-block is invalid, it should be a number in the range from 1 to 64; got 128"),
    ((2, 8, 16, 3, None, False), "Parameter ra-block(3) must be the power of 2"),
    ((2, 8, 16, 32, 32, False), "Parameter ra-block(32)/8 could not be bigger than sp-block(16)/8"),
    ((6, 8, 24, 16, 32, False), "number of tasks(6) must be multiple of nodes occupied by ra-block(2)"),
    ((1, 9, 9, 1, None, False), "Parameter sp-block(9) is not multiple of node npu (8)"),
    ((1, 9, 8, 1, None, False), "single super-pod job require npu [1, 8], instead of 9"),
    ((1, 3, 4, 1, None, False), "single super-pod job sp-block annotation should equal require npu num; got 4 and 3"),
    ((2, 8, 7, 1, None, False), "distributed super-pod job require npu should be multiple of sp-block, instead of 16"),
    ((3, 2, 6, 4, None, False), "distributed super-pod job require npu(6) should be multiple of ra-block"),
    ((3, 6, 1, 1, 32, False), "distributed job require npu 8, instead of 6"),
    ((256, 8, 8, 1, 32, True), "in ubmem scene, task require npu nums should smaller than 1024, but recevice 1032"),
    ((128, 8, 8, 1, 32, True), None),
]


@pytest.mark.parametrize("job, refusal", OF_950)
def test_sizes_of_jobs_on_the_atlas_950(job, refusal):
    assert next(superpods.refusals_950(*job), None) == refusal


# NPUs of a task, tasks, sp-block, where None is not known, and why there is no such job on hosts with 16 NPUs.
SIZES = [
    (None, None, 32, None),
    (None, None, 0, "size not allowed: sp-block 0 is not a number of NPUs; give 1 or more"),
    (None, None, 24, "size not allowed: sp-block 24 is not a multiple of the 16 NPUs of a host"),
    (16, 4, 32, None),
    (16, 3, 32, "size not allowed: the 48 NPUs of the job are not a multiple of sp-block 32"),
    (8, 2, 16, "size not allowed: tasks of one job in a SuperPod have 16 NPUs each, not 8"),
    (8, 1, 8, None),
    (8, 1, 16, "size not allowed: a single task has 8 NPUs, which must equal sp-block 16"),
    (3, None, None, "size not allowed: a single task in a SuperPod has 1-2, 4, 6, 8, 10, 12, 14, 16 NPUs, not 3"),
]


@pytest.mark.parametrize("npus, tasks, block, refusal", SIZES)
def test_sizes_of_jobs_in_superpods(npus, tasks, block, refusal):
    assert request.of_superpod(RULES["a3"].single, npus, tasks, block, 16) == refusal


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
IN_TREES = [
    ("an exact group first", {"a": 2, "b": 3, "c": 4}, 2, "level1=2", 0, {"a": 2}),
    ("fewest fragments, not fewest groups", {"a": 4, "b": 6, "c": 8}, 8, "level1=4", 0, {"a": 4, "b": 4}),
    ("a group that holds all blocks exactly", {"a": 5, "b": 8}, 8, "level1=4", 0, {"b": 8}),
    ("the reserve is kept", {"a": 4, "b": 5}, 4, "level1=4", 1, {"b": 4}),
    ("unless nothing else is left", {"a": 4, "b": 3}, 4, "level1=4", 1, {"a": 4}),
    ("a group smaller than its reserve", {"a": 1, "b": 5}, 2, "level1=1", 2, {"b": 2}),
    ("where reserves are used, the largest are kept longest", {"a": 2, "b": 3}, 4, "level1=1", 2, {"b": 2, "a": 2}),
    ("one group of level 2 for level 1 alone", TWO, 8, "level1=4", 0, {"s2": 4, "s3": 4}),
    ("several where none holds it", TWO, 12, "level1=4", 0, {"s0": 4, "s2": 4, "s3": 4}),
    ("three levels", {"x": TWO, "y": {"g2": {"s4": 8}}}, 8, "level1=2,level2=4,level3=8", 0, {"s4": 8}),
    ("levels above those of the job", {"x": TWO, "y": {"g2": {"s4": 6}}}, 8, "level1=4,level2=8", 0, {"s2": 4, "s3": 4}),
    ("no group of the size", {"a": 3, "b": 3}, 4, "level1=4", 0, "failed to schedule tasks: 6 hosts can take one, but not 4 of them in"),
    ("a tree with too few levels", {"a": 4}, 4, "level1=2,level2=4", 0, "number of levels does not match"),
    ("a block that is no multiple", {}, 8, "level1=3,level2=4", 0, "block level1's value 3 can not be divided by upper level's value 4"),
    ("a job that is no multiple", {}, 8, "level1=2,level2=6", 0, "block level2's value 6 can not be divided by upper level's value 8"),
    ("a gap between levels", {}, 8, "level2=4", 0, "affinity block level1 is not exist"),
    ("no number of hosts", {}, 8, "level1:2", 0, "config pair is not correct: expected level1=2,level2=4; got 'level1:2'"),
    ("a word for a number", {}, 8, "level1=two", 0, "value of pair is not integer: expected 1 or more; got 'level1=two'"),
    ("a block without hosts", {}, 8, "level1=0", 0, "value of pair is not integer"),
]


@pytest.mark.parametrize("groups, tasks, levels, reserve, expected", [row[1:] for row in IN_TREES], ids=[row[0] for row in IN_TREES])
def test_hosts_of_a_job_in_trees(groups, tasks, levels, reserve, expected):
    returns(expected, lambda: Counter(path[-2] for path in trees.place(paths(groups), trees.levels_of(levels, tasks), reserve)))


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
    returns(expected, trees.trees, config)


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
    for part, size in ((0, row * rows), (1, row)):
        for first in range(0, len(taken), size):
            assert len({path[part] for path in taken[first : first + size]}) == 1
