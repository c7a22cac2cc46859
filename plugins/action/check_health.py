# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction

COMMAND = "npu_affinity_health"


class ActionModule(HostAction):
    """Runs the command of the user that says whether a host is healthy."""

    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        command = self.known(COMMAND, variables)
        options = {"_raw_params": command} if isinstance(command, str) else {"argv": command}
        try:
            found = self._execute_module(module_name="ansible.builtin.command", module_args=options, task_vars=variables, wrap_async=False)
        except AnsibleConnectionFailure as error:
            found = {"failed": True, "msg": str(error)}
        if found.get("failed") or found.get("rc"):
            return refused(result | {"msg": _failure(found)})
        return result | found | {"changed": False}


def _failure(found: Mapping[str, Any]) -> str:
    """Return the message of the command with the last line that it printed."""
    printed = (str(found.get(stream) or "").strip() for stream in ("stderr", "stdout"))
    last = next((text.splitlines()[-1] for text in printed if text), "")
    return f"{COMMAND}: {found.get('msg') or 'it could not be run'} {last}".rstrip()
