# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that gather a host and plan it, each for one purpose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._users import pools
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, by_code, shown
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import failure
from ansible_collections.npu.affinity.plugins.plugin_utils._review import file
from ansible_collections.npu.affinity.plugins.plugin_utils._review.entry import review_entry
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import StepTask

TOPOLOGY = "npu_affinity_topology"
NOWHERE = (
    "Name the state to restore: -e npu_affinity_to=-1 for the state before the last change, or an id or a time (UTC) that playbook "
    "npu.affinity.history shows."
)


def gather(task: StepTask) -> dict[str, Any]:
    """Gather the topology, and make no state."""
    return _gathered(task)


def _gathered(task: StepTask, **options: bool | str) -> dict[str, Any]:
    """Return what the host answered, and add the topology to the variables."""
    asked = task.settings.for_gathering()
    result = task.on_host("gather", {**asked, "npu_smi": asked["npu_smi"] or None, **options})
    if not result.get("failed"):
        task.variables[TOPOLOGY] = result["ansible_facts"][TOPOLOGY]
        task.variables["ansible_facts"] = {**(task.variables.get("ansible_facts") or {}), **result["ansible_facts"]}
    return result


def plan(task: StepTask) -> dict[str, Any]:
    """Gather and plan: each task on a host costs the controller a process and all variables of the host."""
    result = _gathered(task)
    return result if result.get("failed") else result | _planned(task)


def plan_to_show(task: StepTask) -> dict[str, Any]:
    """Gather and plan, with what only a printed plan shows."""
    result = _gathered(task, others=True, host_code=runtime.digest(), applied_state=True)
    return result if result.get("failed") else result | _planned(task, shown_to_user=True, in_force=result.pop("in_force", None))


def plan_to_compare(task: StepTask) -> dict[str, Any]:
    """Gather and plan. A host where that fails is refused, because the state in force can be compared all the same."""
    try:
        result = _gathered(task)
    except AnsibleConnectionFailure:
        raise
    except (AnsibleError, ValueError) as error:
        return _refused("NPU_NOT_GATHERED", _text_of(error))
    return _refused("NPU_NOT_GATHERED", result["msg"]) if result.get("failed") else result | _planned(task)


def plan_to_bind(task: StepTask) -> dict[str, Any]:
    """Gather and plan, compare with the state in force, and decide whether the host is to be changed."""
    result = _gathered(task, host_code=runtime.digest())
    if result.get("failed"):
        return result
    in_force = result.get("in_force")
    found = _planned(task, in_force=in_force)
    if "state" not in found:
        return result | found
    state, topology, of_playbooks = found["state"], task.variables[TOPOLOGY], task.settings.of_playbooks()
    if of_playbooks["reviewed"] is not None and not found["refusals"]:
        found |= _refused("NPU_NOT_REVIEWED", *_unreviewed(state, topology, of_playbooks["reviewed"], task.host))
    busy = of_playbooks["skip_busy"] and any(npu["busy"] for npu in topology["npus"])
    waits = found["refusals"] or state["converged"] or busy or not (state["plan"] and state["plan"]["npus"])
    if state["converged"] and not found["refusals"]:
        found["failing"] = _failing(task, topology, state, (in_force or {}).get("compared"))
    return result | found | {"ready": not waits}


def choose_entry(task: StepTask) -> dict[str, Any]:
    """Return the entry of the history that the user names, and the topology of the host, which must have the hardware of the entry."""
    asked, to = task.settings.for_gathering(), task.settings.of_playbooks()["to"]
    if not to:
        return _refused("NPU_NO_ENTRY", NOWHERE) | {"ready": False}
    history = task.attempt("history_info", {"root": asked["root"], "to": to})
    if history.get("failed"):
        return _refused("NPU_NO_ENTRY", history["msg"]) | {"ready": False}
    found = {"entry": history["entry"], "refusals": [], "ready": False, "warnings": history.get("warnings", [])}
    if not history["entry"]:
        return found
    options = {name: asked[name] or None for name in ("root", "npu_smi", "timeout")}
    facts = task.on_host("gather", {**options, "hardware": history["entry"]["state"]["hardware"]})
    if facts["hardware_changes"]:
        why = _other_hardware(history["entry"], facts["hardware_changes"], facts["ansible_facts"][TOPOLOGY]["problems"])
        found |= _refused("NPU_OTHER_HARDWARE", why)
    return facts | found | {"ready": not found["refusals"]}


def _planned(task: StepTask, shown_to_user: bool = False, in_force: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the desired state of the host, its sentences by code, and why a bind is refused."""
    try:
        state = desired_state(task.variables[TOPOLOGY], task.settings.of_features(), shown=shown_to_user, in_force=in_force)
    except (AnsibleError, ValueError) as error:
        return {"ready": False, **_refused("NPU_SETTING_INVALID", _text_of(error))}
    return {"state": state, "codes": state["codes"], "refusals": shown(state["refusals"], state["codes"])}


def _failing(task: StepTask, topology: Any, state: Mapping[str, Any], compared: Any) -> str:
    """Return why a host fails on which a bind changes nothing, as it does right after a bind: drift that no bind corrects, and work
    outside its pool."""
    fail_on = task.settings.of_role("verify")["fail_on"]
    outside = pools.placed(topology.get("users") or (), state["plan"]).outside if state["outside"] else []
    outside = (compared or {}).get("outside") or outside
    found = {
        **(compared or {"drift": []}),
        "muted": state["muted"],
        "outside": outside,
        "outside_sentence": pools.sentence(outside),
        "drift_fails": "drift" in fail_on,
        "workloads_fail": "workloads" in fail_on,
    }
    return failure(found, after_bind=True)


def _unreviewed(state: Mapping[str, Any], topology: Any, files: list[str], host: str) -> list[str]:
    contents = {path: _content(path) for path in files}
    return list(file.refusals({host: review_entry(state, topology)}, contents).values())


def _refused(code: str, *sentences: str) -> dict[str, Any]:
    """Return the keys of a result that say why a host is not bound."""
    codes = by_code(Sentence(code, sentence) for sentence in sentences)
    return {"refusals": shown(sentences, codes), "codes": codes}


def _other_hardware(entry: Mapping[str, Any], changes: list[str], problems: list[str]) -> str:
    sentence = f"Entry {entry['id']} of {entry['time']} is for other hardware: {'; '.join(changes)}."
    return " ".join([sentence, "Bind the host instead, and it is planned for what it has now.", *problems])


def _text_of(error: AnsibleError | ValueError) -> str:
    return str(error.message if isinstance(error, AnsibleError) else error)


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
