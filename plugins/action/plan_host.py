# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.npu.affinity.plugins.filter.desired_state import desired_state
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._users import pools
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, by_code, shown
from ansible_collections.npu.affinity.plugins.plugin_utils._host_action import HostAction
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import failure
from ansible_collections.npu.affinity.plugins.plugin_utils._review import refusals as review
from ansible_collections.npu.affinity.plugins.plugin_utils._review.entry import review_entry

TOPOLOGY = "npu_affinity_topology"
NOWHERE = (
    "Name the state to restore: -e npu_affinity_to=-1 for the state before the last change, or an id or a time (UTC) that playbook "
    "npu.affinity.history shows."
)


class ActionModule(HostAction):
    """Gathers and plans in one task: each task on a host costs the controller a process and all variables of the host."""

    _VALID_ARGS = frozenset({"purpose"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, purpose = dict(task_vars or {}), self._task.args.get("purpose", "role")
        if purpose == "rollback":
            return result | self._chosen(variables)
        try:
            result |= self._gathered(variables, purpose)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            if purpose != "compare":  # the state in force needs nothing of this
                raise
            return result | _refused("NPU_NOT_GATHERED", str(error.message))
        if result.get("failed") and purpose == "compare":
            return _refused("NPU_NOT_GATHERED", result["msg"])
        if result.get("failed") or purpose == "place":
            return result
        return result | self._planned(variables, purpose, result.get("in_force"))

    def _chosen(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of the history that the user names, and the topology of the host, which must have the hardware of the entry."""
        asked, to = self.settings(variables, gather=True), self.settings(variables, playbooks=True)["to"]
        if not to:
            return _refused("NPU_NO_ENTRY", NOWHERE) | {"ready": False}
        history = self.attempt("history_info", {"root": asked["root"], "to": to}, variables)
        if history.get("failed"):
            return _refused("NPU_NO_ENTRY", history["msg"]) | {"ready": False}
        found = {"entry": history["entry"], "refusals": [], "ready": False, "warnings": history.get("warnings", [])}
        if not history["entry"]:
            return found
        options = {name: asked[name] or None for name in ("root", "npu_smi", "timeout")}
        facts = self.on_host("topology_facts", {**options, "hardware": history["entry"]["state"]["hardware"]}, variables)
        if facts["hardware_changes"]:
            why = _other_hardware(history["entry"], facts["hardware_changes"], facts["ansible_facts"][TOPOLOGY]["problems"])
            found |= _refused("NPU_OTHER_HARDWARE", why)
        return facts | found | {"ready": not found["refusals"]}

    def _gathered(self, variables: dict[str, Any], purpose: str) -> dict[str, Any]:
        """Return what module topology_facts returned, and add the topology to the variables."""
        asked = self.settings(variables, gather=True)
        options = {**asked, "npu_smi": asked["npu_smi"] or None, "others": purpose == "plan", "compare": purpose == "bind"}
        options["host_code"] = runtime.digest()
        result = self.on_host("topology_facts", options, variables)
        if not result.get("failed"):
            variables[TOPOLOGY] = result["ansible_facts"][TOPOLOGY]
            variables["ansible_facts"] = {**(variables.get("ansible_facts") or {}), **result["ansible_facts"]}
        return result

    def _planned(self, variables: dict[str, Any], purpose: str, in_force: Mapping[str, Any] | None) -> dict[str, Any]:
        topology = variables[TOPOLOGY]
        try:
            made = self.settings(variables, features=True)
            state = desired_state(topology, made, shown=purpose == "plan", in_force=in_force)
        except AnsibleError as error:
            return {"ready": False, **_refused("NPU_SETTING_INVALID", str(error.message))}
        codes = state["codes"]
        found = {"state": state, "codes": codes, "refusals": shown(state["refusals"], codes)}
        if purpose != "bind":
            return found
        of_playbooks = self.settings(variables, playbooks=True)
        if of_playbooks["reviewed"] is not None and not found["refusals"]:
            found |= _refused(
                "NPU_NOT_REVIEWED", *self._unreviewed(state, topology, of_playbooks["reviewed"], variables["inventory_hostname"])
            )
        busy = of_playbooks["skip_busy"] and any(npu["busy"] for npu in topology["npus"])
        waits = found["refusals"] or state["converged"] or busy or not (state["plan"] and state["plan"]["npus"])
        if state["converged"] and not found["refusals"]:
            found["failing"] = self._failing(variables, topology, state, (in_force or {}).get("compared"))
        return found | {"ready": not waits}

    def _failing(self, variables: dict[str, Any], topology: Any, state: Mapping[str, Any], compared: Any) -> str:
        """Return why a host fails on which a bind changes nothing, as it does right after a bind: drift that no bind corrects, and work
        outside its pool."""
        fail_on = self.settings(variables, role="verify")["fail_on"]
        outside = pools.placed(topology.get("users") or (), state["plan"]).outside if state["outside"] else []
        found = {
            **(compared or {"drift": []}),
            "muted": state["muted"],
            "outside": outside,
            "outside_sentence": pools.sentence(outside),
            "drift_fails": "drift" in fail_on,
            "workloads_fail": "workloads" in fail_on,
        }
        return failure(found, after_bind=True)

    @staticmethod
    def _unreviewed(state: Mapping[str, Any], topology: Any, files: list[str], host: str) -> list[str]:
        contents = {path: _text(path) for path in files}
        return list(review.refusals({host: review_entry(state, topology)}, contents).values())


def _refused(code: str, *sentences: str) -> dict[str, Any]:
    """Return the keys of a result that say why a host is not bound."""
    codes = by_code(Sentence(code, sentence) for sentence in sentences)
    return {"refusals": shown(sentences, codes), "codes": codes}


def _other_hardware(entry: Mapping[str, Any], changes: list[str], problems: list[str]) -> str:
    sentence = f"Entry {entry['id']} of {entry['time']} is for other hardware: {'; '.join(changes)}."
    return " ".join([sentence, "Bind the host instead, and it is planned for what it has now.", *problems])


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
