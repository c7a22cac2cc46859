# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.action.host_files import ActionModule as OnHost
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import archived, specs


class ActionModule(OnHost):
    """Runs the module, and leaves of the settings of an archive those that can be taken."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        for archive in result.get("archives") or ():
            archive["settings"], archive["refused_settings"] = archived.accepted(archive["settings"], specs.options())
            archive["title"] = f"{archive['source']} of {archive['time']}" if archive["time"] else archive["source"]
        return result
