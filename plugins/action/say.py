# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import shown


class ActionModule(ActionBase):
    """Prints lines itself, because callbacks show what an unchanged task returned only where they are set up to do so."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"msg"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        msg = self._task.args["msg"]
        shown(self._display, msg)
        return {**result, "changed": False, "msg": msg}
