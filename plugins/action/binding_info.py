# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.action.host_files import ActionModule as OnHost
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime


class ActionModule(OnHost):
    """Runs the module, which compares the host code with that of this collection."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        self._task.args = {"host_code": runtime.digest(), **self._task.args}
        return super().run(tmp, task_vars)
