# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._action_errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.vnpu import region
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report.role_line import lines_after, role_line
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import sources

STATE, PLAN = "npu_affinity_state", "npu_affinity_plan"
LISTS = ("files", "removed")
WITHOUT_PLAN = (
    "Role npu.affinity.{0} applies the plan of a host, and host {1} has none: run role npu.affinity.plan before it in the same play, as "
    "docs/own-playbook.md shows."
)


class ActionModule(HostAction):
    """Places the files of the soft split, runs module host_files, and says what the kubelet waits for, with the settings of the host."""

    _VALID_ARGS = frozenset({"state", "feature", "entry"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, given = dict(task_vars or {}), self._task.args
        feature, host, settings = given.get("feature"), variables["inventory_hostname"], self.settings(variables, features=True)
        if feature == "vnpu":
            return self._role_vnpu(result, settings, variables)
        entry = given.get("entry")
        state = entry["state"] if entry else given.get("state") or self.known(STATE, variables)
        if not state:
            return refused(result | {"msg": WITHOUT_PLAN.format(feature, host)})
        if feature and not state["plan"]["npus"]:
            return result | {"skipped": True}
        layout = None if feature else state["live"].get("vnpu")
        placed = self._soft_split(layout, settings, variables) if layout else {}
        result |= self.change("host_files", self._options(state, entry, settings, variables), variables)
        _join(result, placed)
        self._say(result, state, settings, variables)
        return result

    def _options(
        self, state: Mapping[str, Any], entry: Mapping[str, Any] | None, settings: Mapping[str, Any], variables: dict[str, Any]
    ) -> dict[str, Any]:
        feature, of_playbooks = self._task.args.get("feature"), self.settings(variables, playbooks=True)
        return {
            "root": settings["plan"]["root"],
            "state": state,
            "features": [feature] if feature else [],
            "action": "rollback" if entry else "bind",
            "author": of_playbooks["author"],
            "reason": of_playbooks["reason"] or (f"back to {_named(entry)}" if entry else ""),
            "irq_failure": settings["irq"]["failure"],
            "move_memory": settings["slices"]["move_memory"],
            "npu_smi": settings["plan"]["npu_smi"] or None,
        }

    def _say(self, result: dict[str, Any], state: Mapping[str, Any], settings: Mapping[str, Any], variables: dict[str, Any]) -> None:
        """Print what a role did, where a rollback is, and what the kubelet waits for. Playbooks have a summary for the rest."""
        feature, entry, check = self._task.args.get("feature"), self._task.args.get("entry"), self._task.check_mode
        host, said = variables["inventory_hostname"], []
        kubelet, restart = result.get("kubelet") or {}, settings["kubelet"]["restart"]
        if result.get("failed"):
            return
        if feature:
            said = lines_after(feature, state["notes"], result)
        if feature and not kubelet.get("pending"):
            said.append(role_line(feature, host, result, check))
        if entry:
            moved = "would go back to" if check else "rolled back to"
            said.append(f"{host}: {moved if result['changed'] else 'already at'} {_named(entry)}")
        if kubelet.get("pending") and restart:
            drop_in = state["live"].get("kubelet")
            result["kubelet_change"] = {"state": "present", **drop_in} if drop_in else {"state": "absent"}
        elif kubelet.get("pending"):
            said += _pending(kubelet)
        result["lines"] = said
        if check == variables["ansible_check_mode"]:  # before npu_affinity_before_host, the same tasks look ahead in check mode
            self.say(said)

    def _role_vnpu(self, result: dict[str, Any], settings: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        plan = self.known(PLAN, variables)
        if not settings["vnpu"]["enabled"] or plan and not plan["npus"]:
            return result | {"skipped": True}
        result |= self._soft_split(settings["vnpu"], settings, variables)
        result["lines"] = [role_line("vnpu", variables["inventory_hostname"], result, self._task.check_mode)]
        self.say(result["lines"])
        return result

    def _soft_split(self, layout: Mapping[str, Any], settings: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Make the directories of the soft split, and copy the files that are missing there."""
        wanted = [{key: file[key] for key in ("name", "sha256")} for file in layout["files"]]
        options = {key: layout[key] for key in ("folder", "shared_mode")} | {"shared_region": region(layout["folder"])}
        result = self.on_host("vnpu_layout", {"root": settings["plan"]["root"], **options, "files": wanted}, variables)
        if result.get("failed"):
            return result
        missing = [file for file in wanted if file["name"] in result["missing"]]
        known = {file["sha256"]: file["src"] for file in settings["vnpu"]["files"]}
        why = sources.refusal(missing, known, variables["inventory_hostname"])
        if why:
            return refused({"msg": why})
        for file in missing:
            mode = "0755" if file["name"].rpartition("/")[2] == "limiter" else "0644"
            options = {"src": known[file["sha256"]], "dest": result["places"][file["name"]], "mode": mode}
            result["changed"] |= self.action("ansible.builtin.copy", options, variables).get("changed", False)
        return result


def _named(entry: Mapping[str, Any]) -> str:
    return f"entry {entry['id']} of {entry['time']}"


def _pending(kubelet: Mapping[str, Any]) -> list[str]:
    removed = f", {' and '.join(kubelet['removed'])} removed" if kubelet["removed"] else ""
    return [
        f"Pending for the kubelet, and not written yet: {'; '.join(kubelet['pending'])}",
        f"With npu_affinity_kubelet_restart: true the node is drained, kubelet stopped, {kubelet['path']} changed{removed}, kubelet "
        "started, and the node uncordoned.",
    ]


def _join(result: dict[str, Any], placed: Mapping[str, Any]) -> None:
    """Add to the result of module host_files what was placed before it."""
    if placed.get("changed"):
        result |= {"changed": True, "disruptive": True}
    for name in LISTS:
        result[name] = [*placed.get(name, ()), *result.get(name, ())]
    if placed.get("diff"):
        result["diff"] = [*_as_list(placed["diff"]), *_as_list(result.get("diff"))]


def _as_list(diff: Any) -> list[Any]:
    return diff if isinstance(diff, list) else [diff] if diff else []
