# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that gather a host and plan it, each for one purpose."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Comparison, DesiredState, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.module_utils._users import pools
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, by_code, shown
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.difference import InForce
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._report import runs
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import failure
from ansible_collections.npu.affinity.plugins.plugin_utils._review import file
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import Result, StepTask

TOPOLOGY = "npu_affinity_topology"
TO = "npu_affinity_to"
NOWHERE = f"Name the state to restore with -e {TO}=: {runs.FORMS}. Playbook npu.affinity.history shows the runs."
NO_HISTORY = "This host is bound and has no history yet: what was applied is kept from the next change on."


def gather(task: StepTask) -> Result:
    """Gather the topology, and make no state. A host where that fails has a refusal instead."""
    try:
        result = _gathered(task)
    except AnsibleConnectionFailure:
        raise
    except (AnsibleError, ValueError) as error:
        return _refused("NPU_NOT_GATHERED", _text_of(error))
    return _refused("NPU_NOT_GATHERED", result["msg"]) if result.get("failed") else result


def _gathered(task: StepTask, **options: bool | str) -> Result:
    """Return what the host answered, and add the topology to the variables."""
    asked = task.settings.for_gathering()
    result = task.on_host("gather", {**asked, "npu_smi": asked["npu_smi"] or None, **options})
    if not result.get("failed"):
        task.variables[TOPOLOGY] = result["ansible_facts"][TOPOLOGY]
        task.variables["ansible_facts"] = {**(task.variables.get("ansible_facts") or {}), **result["ansible_facts"]}
    return result


def plan(task: StepTask) -> Result:
    """Gather and plan: each task on a host costs the controller a process and all variables of the host."""
    result = _gathered(task)
    return result if result.get("failed") else result | _planned(task)


def plan_to_show(task: StepTask) -> Result:
    """Gather and plan, with what only a printed plan shows."""
    result = _gathered(task, others=True, host_code=runtime.digest(), applied_state=True)
    return result if result.get("failed") else result | _planned(task, shown_to_user=True, in_force=_in_force(result))


def _in_force(result: Result) -> InForce | None:
    """Take what was gathered of the state in force out of a result, with the state itself where that was gathered, too."""
    in_force, entry = (result.pop(name, None) for name in ("in_force", "entry"))
    return cast("InForce | None", {**in_force, "state": entry["state"]} if in_force and entry else in_force)


def plan_to_compare(task: StepTask) -> Result:
    """Gather and plan. A host where that fails is refused, because the state in force can be compared all the same."""
    result = gather(task)
    return result if result.get("refusals") else result | _planned(task)


def plan_to_bind(task: StepTask) -> Result:
    """Gather and plan, compare with the state in force, and decide whether the host is to be changed. Check mode tells what changes."""
    result = _gathered(task, host_code=runtime.digest(), applied_state=task.check_mode)
    if result.get("failed"):
        return result
    in_force = _in_force(result)
    planned = _planned(task, in_force=in_force, tell=task.check_mode)
    result["in_force"] = in_force and {key: value for key, value in in_force.items() if key != "state"}
    if "state" not in planned:
        return result | planned
    state, topology, of_playbooks = planned["state"], task.variables[TOPOLOGY], task.settings.of_playbooks()
    if of_playbooks["reviewed"] is not None and not planned["refusals"]:
        contents = {path: _content(path) for path in of_playbooks["reviewed"]}
        unreviewed = file.refusal(task.host, file.review_entry(state, topology), contents)
        planned |= _refused("NPU_NOT_REVIEWED", *filter(None, [unreviewed]))
    busy = of_playbooks["skip_busy"] and any(npu["busy"] for npu in topology["npus"])
    waits = planned["refusals"] or state["converged"] or busy or not (state["plan"] and state["plan"]["npus"])
    if state["converged"] and not planned["refusals"]:
        planned["failing"] = _failing(task, topology, state, in_force and in_force["compared"])
    return result | planned | {"ready": not waits}


def read_history(task: StepTask) -> Result:
    """Return the history of a host without its states, or why it cannot be read."""
    history = task.attempt("history_info", {"root": task.settings.for_gathering()["root"]})
    if history.get("failed"):
        return {"why": history["msg"]}
    kept = ("id", "time", "action", "author", "reason", "run", "difference")
    entries = [{name: entry[name] for name in kept} for entry in history["entries"]]
    return {"entries": entries, "bound": history["bound"], "warnings": history.get("warnings", [])}


def resolve_run(task: StepTask) -> Result:
    """Return which run the user means, once for all hosts of the play, and print it."""
    given, results = task.variable(TO), task.registered("history", task.variables["ansible_play_hosts_all"])
    to = "" if given is None else str(given)
    if not to:
        return {"to": "", "refusal": NOWHERE}
    histories = {name: history["entries"] for name, history in results.items() if "entries" in history}
    try:
        target, lines = runs.resolved(histories, to)
    except ValueError as error:
        return {"to": "", "refusal": f"{TO}: {shown_lines(str(error))}"}
    task.say(lines)
    return {"to": target, "lines": lines, "refusal": runs.unsure(to, target, [name for name in results if name not in histories])}


def choose_entry(task: StepTask) -> Result:
    """Return the entry of the history that the run means, and the topology of the host, which must have the hardware of the entry."""
    history, resolved = (task.variables.get(f"__npu_affinity_{name}") or {} for name in ("history", "resolved"))
    if history.get("lost"):
        return {"ready": False, "msg": history["msg"], "lost": True}
    why = resolved["refusal"] or history.get("why") or ("" if history["entries"] or not history["bound"] else NO_HISTORY)
    try:
        entry = runs.entry_of(history["entries"], resolved["to"]) if not why and history["entries"] else None
    except ValueError as error:
        why = str(error)
    if why:
        return _refused("NPU_NO_ENTRY", why) | {"ready": False}
    if entry is None:
        return {"entry": None, "stays": bool(history["entries"]), "refusals": [], "ready": False}
    asked = task.settings.for_gathering()
    options = {name: asked[name] or None for name in ("root", "npu_smi", "timeout")}
    facts = task.on_host("gather", {**options, "entry": entry["id"]})
    if facts.get("failed"):
        return facts
    result: Result = {"refusals": [], "warnings": history.get("warnings", [])}
    if facts["hardware_changes"]:
        why = f"Entry {entry['id']} (run {entry['run']['id']}) was made for other hardware: {'; '.join(facts['hardware_changes'])}."
        advice = "To plan the host for its present hardware, bind it instead of rolling it back."
        result |= _refused("NPU_OTHER_HARDWARE", " ".join([why, advice, *facts["ansible_facts"][TOPOLOGY]["problems"]]))
    return facts | result | {"ready": not result["refusals"]}


def _planned(task: StepTask, shown_to_user: bool = False, in_force: InForce | None = None, tell: bool = False) -> Result:
    """Return the desired state of the host, its sentences by code, and why a bind is refused."""
    try:
        state = desired_state(task.variables[TOPOLOGY], task.settings.of_features(), shown=shown_to_user, in_force=in_force, tell=tell)
    except (AnsibleError, ValueError) as error:
        return {"ready": False, **_refused("NPU_SETTING_INVALID", _text_of(error))}
    return {"state": state, "codes": state["codes"], "refusals": shown(state["refusals"], state["codes"])}


def _failing(task: StepTask, topology: Topology, state: DesiredState, compared: Comparison | None) -> str:
    """Return why a host fails on which a bind changes nothing: drift that no bind corrects, and work outside its pool."""
    fail_on = task.settings.of_role("verify")["fail_on"]
    outside = pools.placement(topology.get("users") or (), state["plan"] or {}).outside if state["outside"] else []
    outside = compared.get("outside") or outside if compared else outside
    comparison = {
        **(compared or {"drift": []}),
        "muted": state["muted"],
        "outside": outside,
        "drift_fails": "drift" in fail_on,
        "workloads_fail": "workloads" in fail_on,
    }
    return failure(comparison, after_bind=True)


def _refused(code: str, *sentences: str) -> Result:
    codes = by_code(Sentence(code, sentence) for sentence in sentences)
    return {"refusals": shown(sentences, codes), "codes": codes}


def _text_of(error: AnsibleError | ValueError) -> str:
    return str(error.message if isinstance(error, AnsibleError) else error)


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
