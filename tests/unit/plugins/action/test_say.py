# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action say prints lines for the terminal."""

from __future__ import annotations

import types

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.npu.affinity.plugins.action.say import ActionModule


@pytest.mark.parametrize("message", ["node1:\n\tprocess \x1b[2J![](//host) \u202eb", ["node1:", "\tprocess \x1b[2J![](//host) \u202eb"]])
def test_control_characters_do_not_reach_the_terminal(monkeypatch, message):
    task, loader, shown = Task(), DataLoader(), []
    task.action, task.args, task.async_val = "npu.affinity.say", {"msg": message}, 0
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    action = ActionModule(task, connection, None, loader, Templar(loader), None)
    monkeypatch.setattr(action, "_display", types.SimpleNamespace(display=shown.append))
    assert action.run(task_vars={})["msg"] == message
    assert shown == ["node1:\n\tprocess \\x1b[2J![](//host) \\u202eb"]
