# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import without
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction, comparison_options, kubelet_wait
from ansible_collections.npu.affinity.plugins.plugin_utils._report.role_line import lines_after, role_line
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import sources

STATE = "npu_affinity_state"
TOPOLOGY = "npu_affinity_topology"
LISTS = ("files", "removed")
WITHOUT_PLAN = (
    "Role npu.affinity.{0} applies the plan of a host, and host {1} has none: run role npu.affinity.plan before it in the same play, as "
    "docs/own-playbook.md shows."
)


class ActionModule(HostAction):
    """Runs module host_files with the settings of the host and the files that it places, and says what the kubelet waits for."""

    _VALID_ARGS = frozenset({"state", "feature", "entry", "drained"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, given = dict(task_vars or {}), self._task.args
        feature, host, settings = given.get("feature"), variables["inventory_hostname"], self.settings(variables, features=True)
        entry = given.get("entry")
        state = entry["state"] if entry else given.get("state") or self.known(STATE, variables)
        if not state:
            return refused(result | {"msg": WITHOUT_PLAN.format(feature, host)})
        if feature and not state["plan"]["npus"]:
            return result | {"skipped": True}
        result |= self._applied(self._options(state, entry, settings, variables), settings, variables)
        vnpu = result.get("vnpu") or {}
        for name in LISTS:
            result[name] = [*vnpu.get(name, ()), *result.get(name, ())]
        kubelet = result.get("kubelet") or {}
        result["drain"] = bool(kubelet.get("pending")) and settings["kubelet"]["restart"]
        self._say(result, state, variables)
        return result

    def _options(
        self, state: Mapping[str, Any], entry: Mapping[str, Any] | None, settings: Mapping[str, Any], variables: dict[str, Any]
    ) -> dict[str, Any]:
        feature, of_playbooks = self._task.args.get("feature"), self.settings(variables, playbooks=True)
        comparison = None
        if not feature:  # a role compares in a call of its own
            of_verify = self.settings(variables, role="verify")
            comparison = comparison_options(of_verify, settings["plan"]["timeout"], self.known(TOPOLOGY, variables))
        return {
            "root": settings["plan"]["root"],
            "state": state,
            "features": [feature] if feature else [],
            "action": "rollback" if entry else "bind",
            "author": of_playbooks["author"],
            "reason": of_playbooks["reason"] or (f"back to {_named(entry)}" if entry else ""),
            "move_memory": settings["slices"]["move_memory"],
            "compare": comparison,
            "kubelet_wait": kubelet_wait(settings, self._task.args.get("drained", False)),
        }

    def _applied(self, options: Mapping[str, Any], settings: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Run module host_files, with the files of the soft split that the controller has."""
        host, feature = variables["inventory_hostname"], self._task.args.get("feature")
        known = {file["sha256"]: file["src"] for file in settings["vnpu"]["files"]}
        wanted = (options["state"]["live"].get("vnpu") or {}).get("files") or () if feature in (None, "vnpu") else ()
        files = {}
        for file in wanted if not self._task.check_mode else ():
            if file["sha256"] in known:
                why = sources.refusal([file], known, host)
                if why:  # the module fails if the host lacks it
                    self._display.warning(why)
                else:
                    files[file["sha256"]] = known[file["sha256"]]
        result = self.change("host_files", options, variables, files)
        why = sources.refusal((result.get("vnpu") or {}).get("missing") or (), known, host)
        return refused({"msg": why}) if why else result

    def _say(self, result: dict[str, Any], state: Mapping[str, Any], variables: dict[str, Any]) -> None:
        """Print what a role did, and where a rollback is. Playbooks have a summary for the rest."""
        feature, entry, check = self._task.args.get("feature"), self._task.args.get("entry"), self._task.check_mode
        host, said = variables["inventory_hostname"], []
        kubelet = result.get("kubelet") or {}
        if result.get("failed") or result["drain"] and not check:
            return
        if feature:
            said = without(lines_after(feature, state["notes"], result), state.get("muted") or {})
        if feature and not kubelet.get("pending"):
            said.append(role_line(feature, host, result, check))
        if entry:
            moved = "would go back to" if check else "rolled back to"
            said.append(f"{host}: {moved if result['changed'] else 'already at'} {_named(entry)}")
        result["lines"] = said
        if check == variables["ansible_check_mode"]:  # before npu_affinity_before_host, the same tasks look ahead in check mode
            self.say(said)


def _named(entry: Mapping[str, Any]) -> str:
    return f"entry {entry['id']} of {entry['time']}"
