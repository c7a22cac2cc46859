# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every filter refuses with its full name and a sentence."""

from __future__ import annotations

import importlib
import pathlib

import pytest
from ansible.errors import AnsibleFilterError

FOLDER = pathlib.Path(__file__).parents[4] / "plugins/filter"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def by_name(name):
    plugin = importlib.import_module(f"ansible_collections.npu.affinity.plugins.filter.{name}")
    return plugin.FilterModule().filters()[name]


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments(name):
    with pytest.raises(AnsibleFilterError, match=f"npu.affinity.{name}: missing a required argument: "):
        by_name(name)()


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("cpulist", ["0-x"], "cpulist: '0-x' in '0-x' is not a CPU number"),
        ("cpumask", [True], "cpulist: expected a cpulist such as 0-3,8"),
        ("plan", [{}], "topology: "),
        ("compare", [{}], "topology: "),
        ("fleet_table", [[{}]], "the input has an unexpected form (KeyError: "),
    ],
)
def test_sentences(name, arguments, sentence):
    with pytest.raises(AnsibleFilterError) as refused:
        by_name(name)(*arguments)
    assert str(refused.value).startswith(f"npu.affinity.{name}: {sentence}")
