# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The thin filters around CPUs and plans: what they pass on, and how they refuse."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter import cpulist, cpumask, log_lines, plan

TOPOLOGY = {
    "cpus": {"online": "0-11", "siblings": []},
    "numa": [{"id": 0, "cpus": "0-11", "memory_mib": 1024}],
    "npus": [{"kind": "npu", "id": 0, "family": "a2", "pci": "0000:01:00.0", "numa": 0, "affinity": "0-11"}],
}


def call(module, *arguments, **options):
    ((_name, function),) = module.FilterModule().filters().items()
    return function(*arguments, **options)


@pytest.mark.parametrize(
    "value, text, mask",
    [
        ("0-2,5", "0-2,5", "00000027"),
        ([5, 2, 1, 0], "0-2,5", "00000027"),
        (35, "35", "00000008,00000000"),
        ("", "", "00000000"),
        (31, "31", "80000000"),
        (64, "64", "00000001,00000000,00000000"),
    ],
)
def test_cpulist_and_cpumask(value, text, mask):
    assert call(cpulist, value) == text
    assert call(cpumask, value) == mask


@pytest.mark.parametrize("module", [cpulist, cpumask])
@pytest.mark.parametrize("value", ["a-b", None, [1, None]])
def test_a_value_that_names_no_cpus_is_a_filter_error(module, value):
    with pytest.raises(AnsibleFilterError, match="cpulist: "):
        call(module, value)


def test_plan_and_log_lines():
    made = call(plan, TOPOLOGY, "auto", cpus="0-9")
    assert call(log_lines, made) == ["The CPU allocation plan is as follows:", "NPU0: main=[2 3 4 5 6 7]  acl=[8]  release=[[9]]"]


MODES = [
    ("A2", {}, "topo_affinity"),
    ("A3", {"family": "a3"}, "global_slice"),
    ("A2 without printed affinity, which is sliced all the same", {"affinity": None}, "topo_affinity"),
]


@pytest.mark.parametrize("changes, mode", [row[1:] for row in MODES], ids=[row[0] for row in MODES])
def test_the_log_lines_of_a_rank_start_with_its_mode(changes, mode):
    npus = [{**TOPOLOGY["npus"][0], "id": number, "pci": f"0000:0{number}:00.0", **changes} for number in range(3)]
    topology = {**TOPOLOGY, "cpus": {"online": "0-20", "siblings": []}, "numa": [{"id": 0, "cpus": "0-20"}], "npus": npus}
    topology["npus"] = [{**npu, "affinity": "0-20" if npu["affinity"] else None} for npu in npus]
    made = call(plan, topology, npus=[1, 2], repair=False)
    assert call(log_lines, made, rank=1, topology=topology) == [
        f"[cpu_bind_mode] mode={mode} rank=1 visible_npus=[1, 2]",
        "The CPU allocation plan is as follows:",
        "NPU2: main=[16 17 18]  acl=[19]  release=[[20]]",
    ]


def test_a_rank_that_no_npu_has_is_refused():
    with pytest.raises(AnsibleFilterError, match="rank: the plan has 1 NPUs, one for each rank from 0; got 1"):
        call(log_lines, call(plan, TOPOLOGY), rank=1)


def test_log_lines_of_cards_without_roles():
    for family, lines in (("a5", ["Ascend 950 NPU0: worker=[0 1 2 3 4 5 6 7]"]), ("gpu", [])):
        topology = {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][0], "family": family, "kind": "gpu" if family == "gpu" else "npu"}]}
        assert call(log_lines, call(plan, topology, cpus="0-7"))[1:] == lines


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        (["text"], {}, "topology: expected the fact npu_affinity_topology"),
        ([TOPOLOGY], {"cpsu": "0"}, "got an unexpected keyword argument 'cpsu'"),
        ([], {}, "missing a required argument: 'topology'"),
        ([TOPOLOGY], {"strategy": "best"}, "strategy: expected one of auto, "),
        ([TOPOLOGY], {"npus": [3]}, "Invalid NPU id 3, total_npus=1."),
    ],
)
def test_plan_refuses_with_a_sentence(arguments, options, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence.replace("'", ".")):
        call(plan, *arguments, **options)


@pytest.mark.parametrize("value", [None, [], {"cpus": "0"}])
def test_log_lines_need_a_plan(value):
    with pytest.raises(AnsibleFilterError, match="plan: expected a plan of npu.affinity.plan"):
        call(log_lines, value)
