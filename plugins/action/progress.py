# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report.progress import after_batch
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import batches

CHANGING = ("bind", "rollback", "unbind")


class ActionModule(HostAction):
    """Says how far a run is in its batches, once for all hosts of a batch."""

    _requires_connection = False
    _VALID_ARGS = frozenset({"playbook", "before"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, given = dict(task_vars or {}), self._task.args
        hosts = variables["ansible_play_hosts_all"], variables["ansible_play_batch"]
        sizes = self.settings(variables, playbooks=True)["batches"] if given["playbook"] in CHANGING else batches.COMPARED
        at = after_batch(variables["hostvars"], *hosts, {**given, "batches": sizes}, self._task.check_mode)
        if at["batches"] > 1:
            self.say([at["line"]])
        return result | {"at": at}
