# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.action import save
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report import plans
from ansible_collections.npu.affinity.plugins.plugin_utils._review.texts import review_file


class ActionModule(HostAction):
    """Prints the plans of all hosts, and writes them as files, in one task for all hosts."""

    _requires_connection = False
    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = dict(task_vars or {})
        of_playbooks, hosts = self.settings(variables, playbooks=True), variables["hostvars"]
        lines = plans.of_hosts(hosts, variables["ansible_play_hosts"])
        self.say(lines)
        texts: dict[str, str] = {}
        if of_playbooks["plan_file"]:
            place = of_playbooks["plan_file"].removesuffix(".json").removesuffix(".md")
            found = review_file(hosts, variables["ansible_play_hosts_all"])
            texts |= {f"{place}.{kind}": text for kind, text in found.items()}
        return result | {"lines": lines, "written": save.write(texts)}
