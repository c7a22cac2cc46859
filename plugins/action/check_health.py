# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction

COMMAND = "npu_affinity_health"
EXITED = "non-zero return code"
"""Part of the message of ansible.builtin.command for a command that ran and failed."""
LINES, WIDTH = 5, 200
"""How much of each stream the message shows."""


class ActionModule(HostAction):
    """Runs the command of the user that says whether a host is healthy."""

    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        command = self.known(COMMAND, variables)
        options: dict[str, object] = {"_raw_params": command} if isinstance(command, str) else {"argv": command}
        try:
            found = self._execute_module(module_name="ansible.builtin.command", module_args=options, task_vars=variables, wrap_async=False)
        except AnsibleConnectionFailure as error:
            found = {"failed": True, "msg": str(error)}
        if found.get("failed") or found.get("rc"):
            return refused(result | {"msg": failure(command, found)})
        return result | found | {"changed": False}


def failure(command: str | list[str], found: Mapping[str, Any]) -> str:
    """Return the message of a failed check: the command, how it ended, and the last lines of both streams."""
    line = command if isinstance(command, str) else shlex.join(map(str, command))
    reason = str(found.get("msg") or "").rstrip(".")
    is_status = found.get("rc") is not None and (not reason or EXITED in reason)
    ended = f"exited with status {found['rc']}" if is_status else f"could not be run ({reason or 'no reason was given'})"
    printed = [f"Last lines of {stream}:\n{_last_lines(str(found[stream]))}" for stream in ("stderr", "stdout") if found.get(stream)]
    return "\n".join([f"{COMMAND} {ended}: {line}", *printed])


def _last_lines(text: str) -> str:
    return "\n".join(f"  {line[:WIDTH]}" for line in text.strip().splitlines()[-LINES:])
