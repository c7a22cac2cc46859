# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the message of a task has of what a host wrote in place of a result."""

from __future__ import annotations

import pytest

pytest.importorskip("ansible.plugins.action", reason="actions need ansible-core")

from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import told

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
