# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of the memory of units that run."""

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import adopt, threads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import memory_of_units, memory_of_users, moved_mib
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features

GIB = 1024
FITS = ": a bind moves this memory with npu_affinity_move_memory: true, and is refused otherwise while it runs."
KILLS = (
    ", which have room for %s GiB: a bind is refused while it runs, because the kernel would kill its processes. Stop it first, or allow "
    "it more nodes with npu_affinity_memory (wide, or none)."
)
HAS = "npu-0.slice has %s GiB on memory nodes that it would lose, and keeps nodes %s"
REMARKS = [
    # the nodes that a unit has and would get, its memory by node, the room by node in GiB, and the remark
    ("it fits", ("0-1", "1"), {"0": 3, "1": 9}, {"1": 3}, HAS % ("3.0", "1") + FITS),
    ("it does not fit", ("0-1", "1"), {"0": 3, "1": 9}, {"0": 99, "1": 2}, HAS % ("3.0", "1") + KILLS % "2.0"),
    ("it fits on two nodes", ("0-3", "1-2"), {"0": 3, "3": 2}, {"1": 3, "2": 2}, HAS % ("5.0", "1-2") + FITS),
    ("the room is not known", ("0-1", "1"), {"0": 3}, {}, HAS % ("3.0", "1") + ", whose room is not known" + FITS),
    ("the room of one node is not known", ("0-2", "1-2"), {"0": 3}, {"1": 2}, HAS % ("3.0", "1-2") + ", whose room is not known" + FITS),
    ("the room of one node is enough", ("0-2", "1-2"), {"0": 3}, {"1": 3}, HAS % ("3.0", "1-2") + FITS),
    ("nothing lies on the nodes that it loses", ("0-1", "1"), {"1": 9}, {"1": 0}, None),
    ("memory of an earlier set is not lost now", ("1", "1"), {"0": 3, "1": 9}, {"1": 0}, None),
    ("more nodes", ("0", "0-1"), {"0": 3}, {}, None),
    ("memory is left alone", ("0-1", ""), {"0": 3}, {}, None),
]


@pytest.mark.parametrize("nodes, held, room, expected", [row[1:] for row in REMARKS], ids=[row[0] for row in REMARKS])
@pytest.mark.parametrize("unit", ["npu-0.slice", "big.service"])
def test_units_that_lose_memory_nodes_are_named(unit, nodes, held, room, expected):
    now, then = nodes
    units = {
        unit: {"mems": now, "mib": {node: amount * GIB for node, amount in held.items()}},
        "other.slice": {"mems": "0", "mib": {"0": 1}},
    }
    topology = {"memory": {"room_mib": {node: amount * GIB for node, amount in room.items()}, "units": units}}
    services = [{"name": unit, "settings": {"AllowedMemoryNodes": then} if then else {}}]
    service = {"live": {"slices": {"services": services}}}
    document = {"expected": [{"unit": unit, "cpus": "0", "mems": then}]} if unit.endswith(".slice") else service
    assert list(memory_of_units(topology, document)) == ([expected.replace("npu-0.slice", unit)] if expected else [])
    lost = sum(amount for node, amount in held.items() if int(node) not in expand(then))
    assert moved_mib(topology, document) == (lost * GIB if expected else 0)
    assert list(memory_of_units({}, document)) == []


def test_memory_that_the_kernel_does_not_tell_is_not_known():
    units = {"npu-0.slice": {"mems": "0-1", "mib": None}, "npu-1.slice": {"mems": "0", "mib": {"0": 5}}}
    topology = {"memory": {"room_mib": {}, "units": units}}

    def results(nodes):
        document = {"expected": [{"unit": unit, "cpus": "0", "mems": nodes} for unit in units]}
        return list(memory_of_units(topology, document)), moved_mib(topology, document)

    remarks, moved = results("1")
    assert moved is None and len(remarks) == 2
    assert remarks[0] == "npu-0.slice would lose memory nodes 0, and keeps nodes 1; how much memory it has there is not known" + FITS
    assert results("0-1") == ([], 0), "no unit loses a node"


HELD = {"npu-0.slice": 3, "npu-1.slice": 1}
MOVED = [({"npu.slice": 5, **HELD}, 5), ({"npu.slice": 4, **HELD}, 4), ({"npu-0.slice": 3, "big.service": 1}, 4), ({}, 0)]


@pytest.mark.parametrize("lost, expected", MOVED)
def test_memory_in_nested_slices_is_counted_once(lost, expected):
    units = {unit: {"mems": "0-1", "mib": {"0": mib}} for unit, mib in lost.items()}
    document = {"expected": [{"unit": unit, "cpus": "0", "mems": "1"} for unit in lost]}
    assert moved_mib({"memory": {"room_mib": {}, "units": units}}, document) == expected


PLAN = {"npus": [{"kind": "npu", "id": 0, "mems": "1", "memory_nodes": "0-1"}, {"kind": "npu", "id": 1, "mems": "2", "memory_nodes": "2"}]}
USERS = [
    # the NPUs of a user, its group, its memory by node and the room by node in GiB, and whether it would fit
    ([1], "/system.slice/a.service", {"0": 3, "2": 9}, {"0": 99, "2": 2}, False),
    ([1], "/system.slice/a.service", {"0": 3, "2": 9}, {"2": 3}, True),
    ([1], "/system.slice/a.service", {"0": 3, "2": 9}, {}, None),
    ([0, 1], "/system.slice/a.service", {"0": 3, "2": 9}, {}, True),
    ([0, 1], "/system.slice/a.service", {"3": 3}, {"0": 1, "1": 1, "2": 0}, False),
    ([1, 9], "/system.slice/a.service", {"0": 3}, {}, True),
    ([1], "/npu.slice/npu-1.slice/a.service", {"0": 3}, {}, True),
]


@pytest.mark.parametrize("npus, group, held, room, fits", USERS)
def test_work_that_would_not_fit_into_its_slice_is_named(npus, group, held, room, fits):
    user = {"group": group, "name": "a.service", "container": None, "npus": [{"kind": "npu", "id": number} for number in npus]}
    user["memory_mib"] = {node: amount * GIB for node, amount in held.items()}
    memory = {"room_mib": {node: amount * GIB for node, amount in room.items()}, "units": {}}
    remarks = list(memory_of_users({"memory": memory, "users": [user]}, PLAN, {"expected": [{"unit": "npu-1.slice"}]}))
    assert [sentence.startswith("a.service has 3.0 GiB on other memory nodes than ") for sentence in remarks] == [True] * (not fits)
    assert all(("whose room is not known" in sentence and "may not fit" in sentence) is (fits is None) for sentence in remarks)
    without = {"npus": [{**npu, "memory_nodes": ""} for npu in PLAN["npus"]]}
    assert not list(memory_of_users({"memory": memory, "users": [user]}, without, {"expected": []}))


ADOPTING = features.of_features({"npu_affinity_adopt": "always"})["adopt"]


ASKED = [
    ({"openmp": False, "visible_devices": False}, []),
    ({"allocator": True, "openmp": True, "task_queue": None}, ["openmp", "allocator"]),
]


@pytest.mark.parametrize(("asked", "option"), [({}, []), *ASKED])
def test_the_watcher_sets_the_variables_of_the_setting(asked, option):
    wanted = adopt.wanted({}, {"npus": [{"memory_nodes": "0"}]}, {**ADOPTING, "environment": asked})
    assert "Environment=PYTHONUNBUFFERED=1\nExecStart=" in wanted.files[0]["content"], "the journal has its lines at once"
    settings = json.loads(wanted.files[-1]["content"])
    assert settings["rebind_limit"] == 4 and settings["environment"] == dict.fromkeys(option, True)
    assert list(wanted.live["environment"]) == option


NOTES = [
    # settings of adoption, memory nodes of the plan, the policy of the CPU manager, and a part of the note
    ({"move_memory": True}, "0", "none", None),
    ({"move_memory": True}, "", "none", "npu_affinity_move_memory has no effect on running work"),
    ({"move_memory": False}, "", "none", None),
    ({"pods": True}, "0", "none", None),
    ({"pods": True}, "0", "static", "CPU manager policy static"),
    ({"pods": True}, "0", None, "this host has no kubelet"),
]


@pytest.mark.parametrize("settings, nodes, policy, note", NOTES)
def test_a_request_that_adopted_work_cannot_follow_is_said(settings, nodes, policy, note):
    topology = {"kubelet": {"policy": policy} if policy else None}
    wanted = adopt.wanted(topology, {"npus": [{"memory_nodes": nodes}]}, {**ADOPTING, **settings})
    assert [note in text for text in wanted.notes] == ([True] if note else [])
    written = json.loads(wanted.files[-1]["content"])
    assert [(written[name], wanted.live[name]) for name in settings] == [(value, value) for value in settings.values()]
    assert wanted.files[-1]["path"] in wanted.restarted[0]["files"]  # the watcher reads it at its next look, up to a minute later


def test_pods_without_adoption_are_said():
    (note,) = adopt.idle({**ADOPTING, "pods": True})
    assert note == "npu_affinity_adopt_pods has no effect: nothing is adopted; set npu_affinity_adopt, too."


def test_pods_stay_adopted_with_the_mode_that_is_kept():
    kept = adopt.with_mode_in_force({"adopt": {"mode": "always", "pods": True}}, {"adopt": "keep", "move_memory": False, "pods": False})
    assert (kept["adopt"], kept["pods"]) == ("always", True)


@pytest.mark.parametrize(("nodes", "limit"), [("0", 8), ("", 8), ("", 0)])
def test_a_limit_of_memory_that_never_moves_is_said(nodes, limit):
    given = {"npu_affinity_threads_enabled": True, "npu_affinity_threads_memory_limit": limit}
    settings = features.of_features(given)["threads"]
    plan = {"npus": [{"kind": "npu", "id": 0, "slice": "npu-0.slice", "memory_nodes": nodes}]}
    wanted = threads.wanted({}, plan, {**settings, "services": []})
    assert ["npu_affinity_threads_memory_limit has no effect" in note for note in wanted.notes] == [True] * (bool(limit) and not nodes)
