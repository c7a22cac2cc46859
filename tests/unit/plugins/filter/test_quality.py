# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that measures pools: what it passes on, how it refuses, and that its documentation names all it returns."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter import plan, quality

TOPOLOGY = {
    "cpus": {"online": "0-11", "siblings": [], "caches": ["0-5", "6-11"]},
    "numa": [{"id": 0, "cpus": "0-11", "memory_mib": 1024, "distances": {"0": 10}}],
    "npus": [
        {"kind": "npu", "id": 0, "family": "a2", "pci": "0000:01:00.0", "numa": 0, "affinity": "0-11"},
        {"kind": "npu", "id": 1, "family": "a2", "pci": "0000:02:00.0", "numa": 0, "affinity": "0-11"},
    ],
}
measure = quality.FilterModule().filters()["quality"]


def test_pools_from_elsewhere():
    found = measure({"0": "0-5", "1": "4-11"}, TOPOLOGY)
    assert (found["disjoint"], found["overlap"], found["balance"], found["caches"]) == (False, "4-5", 2, 1.5)


def test_a_plan_knows_what_it_divided():
    made = plan.plan(TOPOLOGY, cpus="0-9")
    assert measure(made, TOPOLOGY)["idle"] == ""
    assert measure(made, TOPOLOGY, cpus="0-11")["idle"] == "10-11"
    assert measure({"0": "0-4"}, TOPOLOGY, "0-7")["idle"] == "5-7"


def test_nothing_given_is_changed():
    pools, topology = {"0": "0-5"}, copy.deepcopy(TOPOLOGY)
    measure(pools, topology)
    assert (pools, topology) == ({"0": "0-5"}, TOPOLOGY)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("0-5", TOPOLOGY), "pools: expected a plan, or cpulists by logic id"),
        (({"7": "0-5"}, TOPOLOGY), "pools: '7' names no cards of the host; it has npu-0, npu-1"),
        (({"0": "0-5"}, {}), "topology: expected the fact npu_affinity_topology"),
        (({"0": "0-5"}, TOPOLOGY, "20-30"), "cpus: none of 20-30 is online; online are 0-11"),
    ],
)
def test_refusals_are_filter_errors(arguments, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence):
        measure(*arguments)


def test_the_documentation_names_all_that_is_returned():
    documented = yaml.safe_load(quality.RETURN)["_value"]["contains"]
    found = measure({}, TOPOLOGY)
    assert set(documented) == set(found)
    assert set(documented["npus"]["contains"]) == set(found["npus"][0])
