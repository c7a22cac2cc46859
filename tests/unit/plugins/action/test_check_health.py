# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failed health check shows the command, how it ended and what it printed last."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._steps.looking import EXITED, failed_check

LINES = "\n".join(f"step {number}" for number in range(1, 8))
FAILURES = {
    "both streams": (
        "smoke-test --short",
        {"rc": 3, "msg": EXITED, "stderr": "no answer", "stdout": LINES},
        "npu_affinity_health exited with status 3: smoke-test --short\n"
        "Last lines of stderr:\n  no answer\nLast lines of stdout:\n  step 3\n  step 4\n  step 5\n  step 6\n  step 7",
    ),
    "no output": (
        ["sh", "-c", "exit 1"],
        {"rc": 1, "msg": f"The command exited with a {EXITED}."},
        "npu_affinity_health exited with status 1: sh -c 'exit 1'",
    ),
    "not found": (
        "smoke-test",
        {"rc": 2, "msg": "[Errno 2] No such file or directory: b'smoke-test'", "stdout": ""},
        "npu_affinity_health could not be run ([Errno 2] No such file or directory: b'smoke-test'): smoke-test",
    ),
    "lost": ("true", {"failed": True, "msg": "timed out"}, "npu_affinity_health could not be run (timed out): true"),
    "a long line": (
        "true",
        {"rc": 1, "stdout": "x" * 300},
        "npu_affinity_health exited with status 1: true\nLast lines of stdout:\n  " + "x" * 200,
    ),
}

SECRETS = [
    ("curl -H 'Authorization: Bearer abc.def' http://node/health", "curl -H 'Authorization: Bearer ********' http://node/health"),
    (["check", "--api-key", "abc", "--name=x"], "check --api-key ******** --name=x"),
    ("check --auth-token=abc --limit 3", "check --auth-token=******** --limit 3"),
    ("curl https://me:abc@node/health?password=abc&x=1", "curl https://********@node/health?password=********&x=1"),
    ("check the tokens", "check the tokens"),
]


@pytest.mark.parametrize(("command", "shown"), SECRETS)
def test_secrets_of_a_command_and_its_output_are_not_shown(command, shown):
    found = {"rc": 1, "stdout": '{"access_token": "abc", "state": "down"}'}
    printed = '{"access_token": "********", "state": "down"}'
    assert failed_check(command, found) == f"npu_affinity_health exited with status 1: {shown}\nLast lines of stdout:\n  {printed}"


@pytest.mark.parametrize(("command", "found", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failed_check_shows_command_status_and_output(command, found, message):
    assert failed_check(command, found) == message
