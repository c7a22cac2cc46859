# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction, kubelet_wait


class ActionModule(HostAction):
    """Runs module unbind with the settings of the host, and says whether the node has to be drained before."""

    _VALID_ARGS = frozenset({"drained"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        settings, of_playbooks = self.settings(variables, features=True), self.settings(variables, playbooks=True)
        options = {
            "root": settings["plan"]["root"],
            "author": of_playbooks["author"],
            "reason": of_playbooks["reason"],
            "npu_smi": settings["plan"]["npu_smi"] or None,
            "features": of_playbooks["features"],
            "ignore_busy": settings["device_share"]["ignore_busy"],
            "move_memory": settings["slices"]["move_memory"],
            "kubelet_wait": kubelet_wait(settings, self._task.args.get("drained", False)),
        }
        result |= self.change("unbind", options, variables)
        return result | {"drain": options["kubelet_wait"] == 0 and bool(result.get("pending"))}
