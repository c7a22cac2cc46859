# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules on hosts refuse, or write in place of a result, reaches users as a sentence, without lines of the playbooks."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.action import host_files
from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import Refused, refused
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import told

COLLECTION = Path(__file__).resolve().parents[4]
ON_HOSTS = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text())["action_groups"]["affinity"]


@pytest.mark.parametrize("module", ON_HOSTS)
def test_every_host_module_has_the_action_that_omits_playbooks(module):
    action = importlib.import_module(f"ansible_collections.npu.affinity.plugins.action.{module}").ActionModule
    assert issubclass(action, host_files.ActionModule)


def test_a_result_keeps_completed_work_and_omits_the_exception():
    with pytest.raises(Refused) as error:
        refused({"msg": "No.", "failed": True, "changed": True, "interrupts": {}, "exception": "(traceback)", "warnings": []})
    assert error.value.message == "No." and error.value.result == {"changed": True, "interrupts": {}}
    assert error.value.omit_exception_key


NO_RESULT = "Module result deserialization failed: No start of json char found"
TTY = "sudo: sorry, you must have a tty to run sudo"
CLOSED = "Shared connection to node01 closed.\r\n"
WROTE = [
    ("", f"Could not chdir to home directory /home/ops: Permission denied\n{TTY}\n", f"{NO_RESULT}: {TTY}"),
    ("\r\n/bin/sh: 1: /usr/bin/python: not found\r\n", CLOSED, f"{NO_RESULT}: /bin/sh: 1: /usr/bin/python: not found"),
    ("", CLOSED, NO_RESULT),
    ("", "", NO_RESULT),
]


@pytest.mark.parametrize("stdout, stderr, message", WROTE)
def test_the_last_line_of_what_is_no_result_says_why(stdout, stderr, message):
    result = {"failed": True, "msg": NO_RESULT, "module_stdout": stdout, "module_stderr": stderr, "rc": 1}
    assert told(result, 0) == {**result, "msg": message}
