# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter as playbooks meet it: its documentation holds, and refusals are errors of a filter."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter import launch as filter_file
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.module_utils._base.engines import ENGINES
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import BINDINGS, FORMS
from tests.fakes.two_npus import PLAN, TOPOLOGY

OPTIONS = yaml.safe_load(filter_file.DOCUMENTATION)["options"]
((NAME, LAUNCH),) = filter_file.FilterModule().filters().items()


def test_it_is_called_launch():
    assert NAME == "launch"
    assert LAUNCH(PLAN["npus"][0], "taskset", command="true", notes=False, visible_devices=False) == "taskset --cpu-list 16-31 true"


def test_options_are_documented_with_their_defaults():
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    assert set(OPTIONS) == {"_input", "form", "topology", "binding", "total_npus", *defaults}
    assert {name: OPTIONS[name].get("default", "") or "" for name in defaults} == {name: value or "" for name, value in defaults.items()}
    assert OPTIONS["form"]["choices"] == sorted(FORMS)
    assert OPTIONS["binding"]["choices"] == list(BINDINGS)
    assert OPTIONS["engine"]["choices"] == list(ENGINES)


@pytest.mark.parametrize("option", sorted(set(OPTIONS) - {"_input", "form"}))
def test_every_option_has_an_example(option):
    assert f"{option}=" in filter_file.EXAMPLES


@pytest.mark.parametrize("option", ["image", "arguments", "ascend_runtime"])
def test_options_name_the_forms_that_take_them(option):
    described = str(OPTIONS[option]["description"])
    assert {form for form in FORMS if f"V({form})" in described} == {form for form in FORMS if option in FORMS[form].OPTIONS}


def test_the_command_names_the_forms_that_do_not_take_it():
    described = str(OPTIONS["command"]["description"])
    assert {form for form in FORMS if f"V({form})" in described} == {form for form in FORMS if "command" not in FORMS[form].OPTIONS}


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ([PLAN["npus"][0]], {}, "npu.affinity.launch: missing a required argument: 'form'"),
        ([PLAN["npus"][0], "docker", TOPOLOGY], {}, "npu.affinity.launch: too many positional arguments"),
        ([PLAN["npus"][0], "lxc"], {}, "npu.affinity.launch: form: expected one of balloons, compose, "),
        ([PLAN, "docker"], {}, "npu.affinity.launch: entry: this is a whole plan"),
        ([PLAN["npus"][0], "docker"], {"imgae": "x"}, "npu.affinity.launch: form docker has no option imgae"),
    ],
)
def test_refusals_are_errors_of_the_filter(arguments, options, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence):
        LAUNCH(*arguments, **options)
