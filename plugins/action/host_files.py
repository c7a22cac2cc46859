# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible.plugins.action.normal import ActionModule as Normal

from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import require_success


class ActionModule(Normal):
    """Runs a module on a host; ``meta/runtime.yml`` gives it to every such module.

    What a module fails with is a sentence; a traceback is left to ansible-core.
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = Normal.run(self, tmp, task_vars)
        return result if self._task.failed_when else require_success(result, self._display.verbosity)
