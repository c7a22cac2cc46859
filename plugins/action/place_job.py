# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fleet import fleet
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.job import place


class ActionModule(ActionBase):
    """Places a job. ansible-core would add lines of the playbook to an error of filter place, and print it twice."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset({"hosts", "files", "request"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, args = super().run(tmp, task_vars), self._task.args
        try:
            saved = {Path(file).name: Path(file).read_text(errors="replace") for file in args["files"]} if "files" in args else None
            placement = place(fleet((task_vars or {})["hostvars"], args.get("hosts", ()), saved), args["request"])
        except OSError as error:
            return refused(result | {"msg": f"{error.filename} cannot be read on the controller: {error.strerror}"})
        except ValueError as error:
            return refused(result | {"msg": f"npu_affinity_request: {shown_lines(str(error))}"})
        return result | {"changed": False, "placement": placement}
