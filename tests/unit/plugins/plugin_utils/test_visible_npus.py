# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers in containers that list some NPUs of the host only. Published plans of one NPU each are among the conformance cases."""

from __future__ import annotations

import json

import pytest
from planner_hosts import host, plan, pools

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named

A3 = host([number // 2 * 2 % 16 for number in range(16)], nodes=16, cores=40, family="a3")
A2 = host([6, 0, 6, 0, 4, 2, 4, 2], nodes=8, cores=24)
INCLUDE_ALL = {0: "144-167", 1: "0-23", 2: "168-191", 3: "24-47"}

# The tables of docs/strategies-reference.md, of which the rows of whole hosts and of single NPUs are published.
SEEN = [
    ("A3, all", A3, range(16), {number: f"{40 * number}-{40 * number + 39}" for number in range(16)}),
    ("A3, four", A3, [0, 1, 2, 3], {0: "0-159", 1: "160-319", 2: "320-479", 3: "480-639"}),
    ("A3, four others", A3, "8-11", {8: "0-159", 9: "160-319", 10: "320-479", 11: "480-639"}),
    ("A3, one", A3, [15], {15: "0-639"}),
    ("A2, four", A2, [0, 1, 2, 3], INCLUDE_ALL),
    ("A2, one", A2, [0], {0: "144-191"}),
    ("A2, one of each pair", A2, ["0", "1"], {0: "144-191", 1: "0-47"}),
]


def seen(topology, numbers, **options):
    return plan(topology, bound_by="workers", visible_npus=numbers, **options)


@pytest.mark.parametrize("topology, numbers, expected", [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_workers_divide_by_the_npus_that_they_see(topology, numbers, expected):
    made = seen(topology, numbers)
    assert pools(made) == expected
    assert [entry["slice"] for entry in made["npus"]] == [f"npu-{number}.slice" for number in expected]
    assert (made["options"]["visible_npus"], made["lost"]) == (sorted(expected), [])
    assert bool(made["warnings"]) == (len(expected) < len(topology["npus"]))
    assert seen({**topology, "applied": json.loads(json.dumps(made))}, numbers) == made


def test_it_is_said_that_others_can_take_the_same_cpus():
    assert seen(A2, [0, 1])["warnings"] == [
        "Workers that see only NPUs 0-1 divide all CPUs that they may use between these. Workers of NPUs 2-7 do not know of them and can "
        "use the same CPUs."
    ]
    parent = {"machine": {"architecture": "aarch64", "cgroup": "v2", "systemd": 255}}
    (slice_of_all,) = binding({**A2, **parent}, seen(A2, [0, 1]), Named(bound_by="workers"))["parents"]
    assert slice_of_all["cpus"] == "0-191", "the other NPUs have workers, too"


def test_what_is_hidden_is_not_lost_and_what_is_lost_is():
    whole = plan(A2, bound_by="workers")
    made = seen({**A2, "applied": whole}, [0, 1, 2, 3])
    assert (pools(made), made["lost"]) == (INCLUDE_ALL, [])
    left = [{**card, "id": number} for number, card in enumerate(card for card in A2["npus"] if card["id"] != 1)]
    after = seen({**A2, "npus": left, "applied": made}, [0, 1, 2, 3])
    assert [(entry["slice"], entry["pool"]) for entry in after["npus"]] == [
        (f"npu-{number}.slice", INCLUDE_ALL[number]) for number in (0, 2, 3)
    ]
    assert [entry["slice"] for entry in after["lost"]] == ["npu-1.slice"]
    back = plan({**A2, "applied": made}, bound_by="workers")
    assert (back["npus"], back["lost"]) == (whole["npus"], [])


REFUSED = [
    ({"visible_npus": [9]}, A2, "visible_npus: the host has no NPU 9; it has NPUs 0-7"),
    ({"visible_npus": ["x"]}, A2, "visible_npus: expected a whole number"),
    ({"visible_npus": 5}, A2, "visible_npus: expected a list of logic ids"),
    ({"visible_npus": [0, 1], "npus": [2]}, A2, "Invalid NPU id 2"),
    ({"visible_npus": [0], "bound_by": "host"}, A2, "visible_npus: .* use npu_affinity_bound_by: workers"),
    ({"visible_npus": [0]}, {**A2, "machine": {"architecture": "x86_64"}}, "workers of this host do not bind themselves: .*x86_64"),
]


@pytest.mark.parametrize("options, topology, sentence", REFUSED)
def test_what_is_refused(options, topology, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(topology, **{"bound_by": "workers", **options})
