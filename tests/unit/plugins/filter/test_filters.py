# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters as a playbook calls them: what they pass on, that their documentation is complete, and that refusals are errors of a filter."""

import importlib
import inspect
import json
import pathlib
import re

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter import compare as compare_file
from ansible_collections.npu.affinity.plugins.filter import launch as launch_file
from ansible_collections.npu.affinity.plugins.filter import plan as plan_file
from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._launch import options as launch_options
from ansible_collections.npu.affinity.plugins.module_utils._launch.launching import BINDINGS
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import FORMS
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import comparison
from tests.fakes.two_npus import PLAN, TOPOLOGY
from tests.simulator.generate import generate

NAMES = sorted(path.stem for path in (pathlib.Path(__file__).parents[4] / "plugins/filter").glob("*.py"))
ENTRY = PLAN["npus"][0]
VNPUS = {"npus": [{"kind": "npu", "id": number, "name": "910B3", "memory_mib": 65536} for number in (0, 1)]}


def call(name, *arguments, **options):
    plugin = importlib.import_module(f"ansible_collections.npu.affinity.plugins.filter.{name}")
    return plugin.FilterModule().filters()[name](*arguments, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_argument_is_an_error_with_the_full_name(name):
    with pytest.raises(AnsibleFilterError, match=f"npu.affinity.{name}: missing a required argument: "):
        call(name)


REFUSED = [
    ("cpulist", ["0-x"], {}, "cpulist: '0-x' in '0-x' is not a CPU number"),
    ("cpumask", [True], {}, "cpulist: expected a cpulist such as 0-3,8"),
    ("plan", [{}], {}, "topology: "),
    ("plan", [TOPOLOGY], {"cpsu": "0"}, "the input has an unexpected form (TypeError: got an unexpected keyword argument 'cpsu')"),
    ("compare", [{}], {}, "topology: expected the fact npu_affinity_topology"),
    ("compare", [TOPOLOGY], {"repair": True}, "got an unexpected keyword argument 'repair'"),
    ("launch", [ENTRY, "docker", TOPOLOGY], {}, "too many positional arguments"),
    ("launch", [ENTRY, "lxc"], {}, "form: expected one of balloons, compose, "),
    ("fit_vnpus", [[], {"type": "T"}], {"hard": True}, "there is no option hard"),
    ("fit_vnpus", [[{"id": "a", "size": 1}], {}], {}, "device a has unknown fields size"),
    ("fit_vnpus", [VNPUS, {"chip": "910B3", "memory": "28Gi"}], {"soft": True}, "memory: 28Gi is"),
    ("fit_vnpus", [VNPUS, {"chip": "H100"}], {}, "chip: HAMi has no templates"),
    ("fit_vnpus", [VNPUS, {"chip": "910B3", "cards": 1}], {}, "request: cards is not of a request with chip"),
    ("fit_vnpus", [{"cpus": {}}, {}], {}, "devices: expected a list of devices, or the fact"),
    ("select_npus", [[0], 3, "atlas800_9000"], {}, "size not allowed"),
    ("select_npus", [[0]], {}, "family: chip ids do not show the product"),
    ("select_npus", [[0]], {"number": 3}, "got an unexpected keyword argument 'number'"),
    ("select_npus", [[0]], {"share": {"used": {}}}, "share: request and chip_hbm_mb is missing"),
    ("place", [{}, {"npus": 0}], {}, "cpus and npus"),
    ("place", [[], {"npus": 1}], {}, "hosts: expected a dictionary"),
    ("workloads", [PLAN, [{"name": "a", "npus": [8]}], TOPOLOGY], {}, "npu_affinity_workloads: a wants NPU 8, but the plan "),
]


@pytest.mark.parametrize("name, arguments, options, sentence", REFUSED)
def test_a_refusal_is_an_error_with_the_full_name_and_a_sentence(name, arguments, options, sentence):
    with pytest.raises(AnsibleFilterError) as refused:
        call(name, *arguments, **options)
    assert str(refused.value).startswith(f"npu.affinity.{name}: {sentence}")


@pytest.mark.parametrize("value, text, mask", [([5, 2, 1, 0], "0-2,5", "00000027"), (35, "35", "00000008,00000000"), ("", "", "00000000")])
def test_cpulist_and_cpumask(value, text, mask):
    assert (call("cpulist", value), call("cpumask", value)) == (text, mask)


def test_compare_shows_the_familys_strategy_and_equal_shares():
    found = call("compare", TOPOLOGY)
    assert [rule["label"] for rule in found["rules"]] == ["a", "b", "b", "b"]
    assert found["differences"][0] == {"name": "NPU 0", "numa": 1, "pools": {"a": "0-15", "b": "16-31"}}
    assert json.loads(json.dumps(found)) == found
    named = {"strategies": ["even_split"], "cpus": "0-19", "housekeeping": 1, "smt": "threads", "min_cpus": 3}
    assert call("compare", TOPOLOGY, *named.values()) == call("compare", TOPOLOGY, **named)


def test_workloads_give_the_published_task_of_5_cards_240_cpus(tmp_path):
    generate("l40s_384", tmp_path)
    topology = gather(Host(str(tmp_path)))
    (task,) = call("workloads", call("plan", topology), [{"name": "llm-a", "npus": [0, 1, 2, 4, 5]}], topology)
    assert (task["pool"], task["mems"], task["slice"]) == ("0-71,96-143,192-263,288-335", "0-1", "gpu-llm_a.slice")
    assert task["cpus_per_node"] == {"0": 144, "1": 96}
    assert [process["pool"] for process in task["processes"]][:2] == ["0-23,192-215", "24-47,216-239"]


def test_two_shares_of_one_host_go_on_one_card_until_it_is_full():
    shares = [{"chip": "910B3", "memory": 28672, "core": core} for core in (20, 40, 50, 60)]
    results = call("fit_vnpus", VNPUS, shares, soft=True, node_soft=True)
    assert [result["devices"] for result in results] == [["npu-1"], ["npu-1"], ["npu-0"], None]
    assert results[3]["reason"] == "1/2 CardInsufficientCore, 1/2 CardInsufficientMemory"
    assert results[0]["taken"] == [{"id": "npu-1", "memory_mb": 28672, "core": 20, "template": None}]


def test_named_options_of_fit_vnpus_win_over_a_dictionary():
    devices = [{"id": "a", "total_memory_mb": 100, "type": "T"}]
    asked = {"memory_mb": 1, "core": 1, "type": "T"}
    assert call("fit_vnpus", devices, asked, {"soft": True})["reason"] == "1/1 ModeNotFit"
    assert call("fit_vnpus", devices, asked, {"soft": True}, soft=False)["devices"] == ["a"]


def test_the_documentation_names_all_that_is_returned():
    found, documented = call("compare", TOPOLOGY), yaml.safe_load(compare_file.RETURN)["_value"]["contains"]
    assert set(documented) == set(found)
    assert all(set(documented[name]["contains"]) == set(found[name][0]) for name in ("rules", "differences"))
    of_quality, quality = documented["rules"]["contains"]["quality"]["contains"], found["rules"][0]["quality"]
    of_plan = yaml.safe_load(plan_file.RETURN)["_value"]["contains"]["quality"]["contains"]
    assert sorted([*of_quality, *of_plan]) == sorted(quality)
    assert set(of_quality["npus"]["contains"]) == set(quality["npus"][0])


def test_the_documentation_of_compare_has_all_its_options():
    documented = yaml.safe_load(compare_file.DOCUMENTATION)
    parameters = list(inspect.signature(comparison.compare).parameters.values())[1:]
    assert documented["positional"].split(", ") == [parameter.name for parameter in parameters] == list(documented["options"])[1:]
    defaults = [list(option.default) if isinstance(option.default, tuple) else option.default for option in parameters]
    assert [documented["options"][parameter.name].get("default") for parameter in parameters] == defaults
    known = yaml.safe_load(plan_file.DOCUMENTATION)["options"]["strategy"]["choices"]
    assert documented["options"]["strategies"]["choices"] == known


OPTIONS = yaml.safe_load(launch_file.DOCUMENTATION)["options"]


def test_options_of_launch_have_documented_defaults_and_examples():
    defaults = {name: option.default for name, option in launch_options.OPTIONS.items()}
    assert set(OPTIONS) == {"_input", "form", "topology", "binding", "total_npus", *defaults}
    assert {name: OPTIONS[name].get("default", "") or "" for name in defaults} == {name: value or "" for name, value in defaults.items()}
    choices = {"form": sorted(FORMS), "binding": list(BINDINGS), "engine": list(ENGINES)}
    assert {name: OPTIONS[name]["choices"] for name in choices} == choices
    assert [option for option in set(OPTIONS) - {"_input", "form"} if f"{option}=" not in launch_file.EXAMPLES] == []


@pytest.mark.parametrize("option, named", [("image", True), ("arguments", True), ("ascend_runtime", True), ("command", False)])
def test_options_of_launch_name_the_forms_that_take_them(option, named):
    described = re.findall(r"V\((\w+)\)", str(OPTIONS[option]["description"]))
    assert set(FORMS) & set(described) == {form for form in FORMS if (option in FORMS[form].options) is named}
