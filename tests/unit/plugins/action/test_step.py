# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action that runs the steps of playbooks: its options, what it prints, and the files that it writes."""

from __future__ import annotations

import inspect
import os
import re
import types
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.npu.affinity.plugins.action.step import ActionModule
from ansible_collections.npu.affinity.plugins.modules import step as documented
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.files import write
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.register import STEPS

COLLECTION = Path(__file__).resolve().parents[4]
OPTIONS = yaml.safe_load(documented.DOCUMENTATION)["options"]


def action(**options):
    task, loader = Task(), DataLoader()
    task.action, task.args, task.async_val = "npu.affinity.step", options, 0
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    return ActionModule(task, connection, None, loader, Templar(loader), None)


@pytest.mark.parametrize("message", ["node1:\n\tprocess \x1b[2J![](//host) \u202eb", ["node1:", "\tprocess \x1b[2J![](//host) \u202eb"]])
def test_control_characters_do_not_reach_the_terminal(monkeypatch, message):
    shown, saying = [], action(name="say", msg=message)
    monkeypatch.setattr(saying, "_display", types.SimpleNamespace(display=shown.append))
    assert saying.run(task_vars={}) == {"changed": False, "step": "say", "msg": message}
    assert shown == ["node1:\n\tprocess \\x1b[2J![](//host) \\u202eb"]


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"name": "sya"}, "npu.affinity.step: expected one of apply, .* as name; got 'sya'"),
        ({"name": "say"}, "npu.affinity.step say: missing a required argument: 'msg'"),
        ({"name": "verify", "purpose": "bind"}, "npu.affinity.step verify: got an unexpected keyword argument 'purpose'"),
    ],
)
def test_an_unknown_step_or_option_is_refused(options, sentence):
    with pytest.raises(AnsibleActionFail, match=sentence):
        action(**options).run(task_vars={})


def test_a_failed_step_is_named():
    failed = action(name="fail", msg=["a", "b"])
    try:
        result = failed.run(task_vars={})
    except AnsibleActionFail as error:  # since ansible-core 2.19
        result = error.result | {"msg": error.message}
    assert (result["step"], result["msg"]) == ("fail", "a\nb")


def test_every_step_is_documented_and_used():
    assert OPTIONS["name"]["choices"] == list(STEPS)
    taken = {option for step in STEPS.values() for option in list(inspect.signature(step).parameters)[1:]}
    assert set(OPTIONS) == {"name", *taken}
    texts = "".join(path.read_text() for folder in ("playbooks", "roles") for path in sorted((COLLECTION / folder).rglob("*.yml")))
    called = {found for pair in re.findall(r"name: (\w+)$|_step(?:: | \| default\(')(\w+)", texts, re.MULTILINE) for found in pair}
    assert [name for name in STEPS if name not in called] == []


def test_files_are_written_once_and_with_their_folders(tmp_path):
    path, other = tmp_path / "reports" / "node1.json", tmp_path / "reports" / "node1.xml"
    files = {str(path): '{"host": "ä"}', str(other): "<testsuite/>\n"}
    assert write(files) == list(files)
    assert path.read_text() == '{"host": "ä"}' and other.stat().st_mode & 0o777 == 0o644
    assert write(files) == []
    assert write({**files, str(other): "<other/>"}) == [str(other)]
    assert sorted(found.name for found in path.parent.iterdir()) == ["node1.json", "node1.xml"]


@pytest.mark.parametrize("path", ["/dev/null", "{folder}", "{folder}/fifo"])
def test_what_is_no_file_is_neither_waited_for_nor_replaced(tmp_path, path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(AnsibleActionFail, match="cannot be written on the controller: it is not a file"):
        write({path.format(folder=tmp_path): "{}"})
    assert not os.path.isfile("/dev/null")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "reports").write_text("")
    with pytest.raises(AnsibleActionFail, match="reports/a.json cannot be written on the controller: "):
        write({str(tmp_path / "reports" / "a.json"): "{}"})
