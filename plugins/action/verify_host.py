# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.npu.affinity.plugins.action import save
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import coded
from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction, comparison_options
from ansible_collections.npu.affinity.plugins.plugin_utils._report.junit import junit
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import OF_USER, drift_fails, failure, record, sentences
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import mutes


class ActionModule(HostAction):
    """Compares a host, says what differs, keeps the reports, and fails the host, in one task."""

    _VALID_ARGS = frozenset({"purpose"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, purpose = dict(task_vars or {}), self._task.args.get("purpose", "role")
        own, host = self.settings(variables, role="verify"), variables["inventory_hostname"]
        try:
            muted, expired = mutes.of_host(mutes.checked(own["mute"]), host)
        except ValueError as error:
            return refused(result | {"msg": str(error)})
        variables |= {name: self.known(name, variables) for name in ("npu_affinity_topology", "npu_affinity_state") if name in variables}
        found = variables["__npu_affinity_host_result"]["compared"] if purpose == "bind" else self._compared(variables, own)
        result |= found
        result |= {"muted": muted, "remarks": [*result.get("remarks", ()), *expired]}
        known = variables | {"__npu_affinity_verified": result}
        if own["reports"]:
            of_user = {f"npu_affinity_{key}": variables["hostvars"][host].get(f"npu_affinity_{key}") for key in OF_USER}
            result["remarks"] += self._save(own["reports"], host, record(host, known | of_user))
        lines = []
        if purpose != "bind" or result.get("drift", True):
            lines = [f"{host}: {sentence}" for sentence in sentences(result, variables, purpose == "bind")]
        self.say(lines)
        result |= {"lines": lines, "drift_fails": drift_fails(result, own["fail_on"]), "workloads_fail": "workloads" in own["fail_on"]}
        why = "" if purpose == "compare" else failure(result, purpose == "bind")
        return refused(result | {"msg": why}) if why else result

    def _compared(self, variables: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Return what module binding_info found, or its message where it failed."""
        settings = self.settings(variables, gather=True)
        is_refused = (variables.get("__npu_affinity_gathered") or {}).get("refusals")
        topology = variables.get("npu_affinity_topology") or {}
        asked = comparison_options(own, settings["timeout"], topology)
        if topology.get("users") is not None:
            asked["topology"]["users"] = topology["users"]
        options = {
            "root": own["root"],
            "desired": None if is_refused else variables.get("npu_affinity_state"),
            "host_code": runtime.digest(),
            **asked,
        }
        found = self.attempt("binding_info", options, variables)
        return {"msg": found["msg"]} if found.get("failed") else found

    @staticmethod
    def _save(folder: str, host: str, found: Mapping[str, Any]) -> list[str]:
        """Write the reports of a host, and return a sentence where that fails: what was found counts more."""
        text = json.dumps(found, indent=4, sort_keys=True, default=str)
        try:
            save.write({f"{folder}/{host}.json": text, f"{folder}/{host}.xml": junit(found, host)})
        except AnsibleActionFail as error:
            return coded("NPU_REPORT_MISSING", [f"The report is missing: {error.message}"])
        return []
