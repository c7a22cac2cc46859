# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action that runs the steps of playbooks; and what hosts answer in place of a result reaches users as a sentence."""

import importlib
import inspect
import os
import re
import types
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.npu.affinity.plugins.action import host_files
from ansible_collections.npu.affinity.plugins.action.step import STEPS, ActionModule
from ansible_collections.npu.affinity.plugins.modules import step as documented
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import Refused, refused
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.looking import EXITED, failed_check
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import require_success, unreachable, write

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


UNKNOWN = [
    ({"name": "sya"}, "npu.affinity.step: expected one of apply, .* as name; got 'sya'"),
    ({"name": "say"}, "npu.affinity.step say: missing a required argument: 'msg'"),
    ({"name": "verify", "purpose": "bind"}, "npu.affinity.step verify: got an unexpected keyword argument 'purpose'"),
]


@pytest.mark.parametrize("options, sentence", UNKNOWN)
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
    assert OPTIONS["name"]["choices"] == sorted(STEPS)
    taken = {option for step in STEPS.values() for option in list(inspect.signature(step).parameters)[1:]}
    assert set(OPTIONS) == {"name", *taken}
    texts = "".join(path.read_text() for folder in ("playbooks", "roles") for path in sorted((COLLECTION / folder).rglob("*.yml")))
    called = {name for pair in re.findall(r"name: (\w+)$|_step(?:: | \| default\(')(\w+)", texts, re.MULTILINE) for name in pair}
    assert [name for name in STEPS if name not in called] == []


def test_files_are_written_once_and_with_their_folders(tmp_path):
    path, other = tmp_path / "reports" / "node1.json", tmp_path / "reports" / "node1.xml"
    files = {str(path): '{"host": "ä"}', str(other): "<testsuite/>\n"}
    assert write(files) == list(files)
    assert path.read_text() == '{"host": "ä"}' and other.stat().st_mode & 0o777 == 0o644
    assert write(files) == []
    assert write({**files, str(other): "<other/>"}) == [str(other)]
    assert sorted(file.name for file in path.parent.iterdir()) == ["node1.json", "node1.xml"]


NO_FILES = [*((path, "it is not a file") for path in ("/dev/null", "{folder}", "{folder}/fifo")), ("{folder}/x/a", "")]


@pytest.mark.parametrize("path, why", NO_FILES)
def test_what_cannot_be_written_is_named_and_not_waited_for(tmp_path, path, why):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "x").write_text("")
    with pytest.raises(AnsibleActionFail, match=f"cannot be written on the controller: {why}"):
        write({path.format(folder=tmp_path): "{}"})
    assert not os.path.isfile("/dev/null")


REFUSED, PIPE = "ssh: connect to host 10.0.0.7 port 22: Connection refused", "[Errno 32] Broken pipe"
SENT = "Data could not be sent to remote host '10.0.0.7'. Make sure this host can be reached over"
LOST = [
    (f"Failed to connect to the host via ssh: {REFUSED}", None, REFUSED),
    (f"{SENT} ssh: {REFUSED}".replace("'", '"'), None, REFUSED),
    (f"{SENT} ssh: {PIPE}".replace("'", '"'), None, f"10.0.0.7 cannot be reached over SSH: {PIPE}"),
    (f"{SENT} SSH.", BrokenPipeError, f"10.0.0.7 cannot be reached over SSH: {PIPE}"),
]


@pytest.mark.parametrize("message, cause, says", LOST)
def test_a_host_that_does_not_answer_is_named_by_its_address(message, cause, says):
    with pytest.raises(AnsibleConnectionFailure) as lost:
        raise AnsibleConnectionFailure(message) from cause and cause(32, "Broken pipe")
    assert unreachable(lost.value) == {"msg": says, "lost": True}


RUNTIME = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text())
ON_HOSTS = RUNTIME["action_groups"]["affinity"]


@pytest.mark.parametrize("module", ON_HOSTS)
def test_every_host_module_has_the_action_that_omits_playbooks(module):
    routed = RUNTIME["plugin_routing"]["modules"].get(module, {}).get("action_plugin", f"npu.affinity.{module}")
    action = importlib.import_module(f"ansible_collections.npu.affinity.plugins.action.{routed.rpartition('.')[2]}").ActionModule
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
    assert require_success(result, 0) == {**result, "msg": message}


LINES = "\n".join(f"step {number}" for number in range(1, 8))
SECRETS = [
    ("curl -H 'Authorization: Bearer abc.def' http://node/health", "curl -H 'Authorization: Bearer ********' http://node/health"),
    (["check", "--api-key", "abc", "--name=x"], "check --api-key ******** --name=x"),
    ("check --auth-token=abc --limit 3", "check --auth-token=******** --limit 3"),
    ("curl https://me:abc@node/health?password=abc&x=1", "curl https://********@node/health?password=********&x=1"),
    ("check the tokens", "check the tokens"),
]
SECRET_OUTPUT = {"rc": 1, "stdout": '{"access_token": "abc", "state": "down"}'}
FAILURES = {
    "both streams": (
        "smoke-test --short",
        {"rc": 3, "msg": EXITED, "stderr": "no answer", "stdout": LINES},
        "exited with status 3: smoke-test --short\n"
        "Last lines of stderr:\n  no answer\nLast lines of stdout:\n  step 3\n  step 4\n  step 5\n  step 6\n  step 7",
    ),
    "no output": (["sh", "-c", "exit 1"], {"rc": 1, "msg": f"The command exited with a {EXITED}."}, "exited with status 1: sh -c 'exit 1'"),
    "not found": ("check", {"rc": 2, "msg": "[Errno 2] No such file", "stdout": ""}, "could not be run ([Errno 2] No such file): check"),
    "lost": ("true", {"failed": True, "msg": "timed out"}, "could not be run (timed out): true"),
    "a long line": ("true", {"rc": 1, "stdout": "x" * 300}, f"exited with status 1: true\nLast lines of stdout:\n  {'x' * 200}"),
}
HIDDEN = '\nLast lines of stdout:\n  {"access_token": "********", "state": "down"}'
FAILURES |= {f"secrets of {shown}": (command, SECRET_OUTPUT, f"exited with status 1: {shown}{HIDDEN}") for command, shown in SECRETS}


@pytest.mark.parametrize("command, result, message", FAILURES.values(), ids=FAILURES)
def test_a_failed_check_shows_command_status_and_output(command, result, message):
    assert failed_check(command, result) == f"npu_affinity_health {message}"
