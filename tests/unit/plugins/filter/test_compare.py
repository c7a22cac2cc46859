# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that compares strategies: what it passes on, how it refuses, and that its documentation is complete."""

from __future__ import annotations

import inspect
import json

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter import compare, plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import comparison

CPUS = {0: "0-7", 1: "8-15", 2: "16-23"}
TOPOLOGY = {
    "cpus": {"online": "0-23", "siblings": [], "caches": list(CPUS.values())},
    "numa": [
        {"id": node, "cpus": cpus, "memory_mib": 1024, "distances": {str(other): 10 if other == node else 20 for other in CPUS}}
        for node, cpus in CPUS.items()
    ],
    "npus": [
        {"kind": "npu", "id": node, "family": "a2", "pci": f"0000:0{node}:00.0", "numa": node, "affinity": CPUS[node]} for node in CPUS
    ],
}
compared = compare.FilterModule().filters()["compare"]


def test_the_family_s_strategy_beside_equal_shares():
    found = compared(TOPOLOGY)
    assert [rule["label"] for rule in found["rules"]] == ["a", "b", "b", "b"]
    assert found["rules"][0]["quality"]["overlap"] == "0-23"
    assert found["differences"][0] == {"name": "NPU 0", "numa": 0, "pools": {"a": "0-15", "b": "0-7"}}
    assert "NPU 0  0     0-15       0-7" in found["table"]


def test_options_by_position_and_by_name():
    assert compared(TOPOLOGY, ["even_split"], "0-19", 1, "threads", 3) == compared(
        TOPOLOGY, strategies=["even_split"], cpus="0-19", housekeeping=1, smt="threads", min_cpus=3
    )


def test_the_result_is_plain_data():
    found = compared(TOPOLOGY, ["auto", "cluster"])
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ([TOPOLOGY, ["best"]], {}, "strategies: expected some of auto, cluster"),
        ([TOPOLOGY], {"housekeeping": "x"}, "housekeeping: 'x' in 'x' is not a CPU number or range"),
        ([TOPOLOGY], {"repair": True}, "got an unexpected keyword argument 'repair'"),
        ([{}], {}, "topology: expected the fact npu_affinity_topology"),
    ],
)
def test_refusals_are_filter_errors(arguments, options, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence):
        compared(*arguments, **options)


def test_the_documentation_has_all_options_as_they_are():
    documented = yaml.safe_load(compare.DOCUMENTATION)
    parameters = list(inspect.signature(comparison.compare).parameters.values())[1:]
    assert documented["positional"].split(", ") == [parameter.name for parameter in parameters] == list(documented["options"])[1:]
    assert [documented["options"][parameter.name].get("default") for parameter in parameters] == [
        list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default for parameter in parameters
    ]
    known = yaml.safe_load(plan.DOCUMENTATION)["options"]["strategy"]["choices"]
    assert documented["options"]["strategies"]["choices"] == known


def test_the_documentation_names_all_that_is_returned():
    documented = yaml.safe_load(compare.RETURN)["_value"]["contains"]
    found = compared(TOPOLOGY)
    assert set(documented) == set(found)
    for part in ("rules", "differences"):
        assert set(documented[part]["contains"]) == set(found[part][0])
