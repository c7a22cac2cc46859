# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that compare a host with its state in force, say what differs, and keep the reports."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import coded
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._report.export import junit
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import RANKS, rank
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import OF_USER, drift_fails, failure, record, remarks, sentences
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import mutes
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import DRIFT, Result, StepTask, comparison_options, write


def compare(task: StepTask) -> Result:
    """Compare a host. The summary of the playbook fails it, and prints once what several hosts have in common."""
    return _reported(task, _compared(task), summarized=True)


def verify(task: StepTask) -> Result:
    return _judged(_reported(task, _compared(task)), after_bind=False)


def verify_after_bind(task: StepTask) -> Result:
    """Take the comparison that was part of the change. Services that wait for a restart do not fail the host."""
    _evaluate_facts(task)
    compared = dict(task.variables["__npu_affinity_host_result"]["compared"])
    return _judged(_reported(task, compared, summarized=True), after_bind=True)


def _evaluate_facts(task: StepTask) -> None:
    """Evaluate the facts, which a play may have set by templates."""
    for name in ("npu_affinity_topology", "npu_affinity_state"):
        if name in task.variables:
            task.variables[name] = task.variable(name)


def _judged(result: Result, after_bind: bool) -> Result:
    why = failure(result, after_bind)
    return refused(result | {"msg": why}) if why else result


def _reported(task: StepTask, result: Result, summarized: bool = False) -> Result:
    """Return a comparison with what is muted, print what differs, and write the reports."""
    settings, host = task.settings.of_role("verify"), task.host
    muted, expired = mutes.of_host(mutes.checked(settings["mute"]), host)
    result |= {"muted": muted, "remarks": [*result.get("remarks", ()), *expired]}
    if settings["reports"]:
        of_user = {f"npu_affinity_{key}": task.variables["hostvars"][host].get(f"npu_affinity_{key}") for key in OF_USER}
        report = record(host, task.variables | {"__npu_affinity_verified": result} | of_user)
        result["remarks"] += _save(settings["reports"], host, report)
    ranked = sorted(remarks(result, task.variables), key=lambda text: RANKS.index(rank(text)))
    lines = [f"{host}: {text}" for text in (*sentences(result), *(f"{rank(text)}: {text}" for text in ranked))]
    task.say([] if summarized else lines)
    if summarized and result.get("drift"):
        result[DRIFT] = list(sentences(result))
    fail_on = settings["fail_on"]
    return result | {"lines": lines, "drift_fails": drift_fails(result, fail_on), "workloads_fail": "workloads" in fail_on}


def _compared(task: StepTask) -> Result:
    """Return what module binding_info found, or its message where it failed."""
    _evaluate_facts(task)
    settings, is_refused = task.settings.of_role("verify"), (task.variables.get("__npu_affinity_gathered") or {}).get("refusals")
    topology = task.variables.get("npu_affinity_topology") or {}
    asked = comparison_options(settings, task.settings.for_gathering()["timeout"], topology)
    if topology.get("users") is not None:
        asked["topology"]["users"] = topology["users"]
    options = {
        "root": settings["root"],
        "desired": None if is_refused else task.variables.get("npu_affinity_state"),
        "host_code": runtime.digest(),
        **asked,
    }
    result = task.attempt("binding_info", options)
    return {"msg": result["msg"]} if result.get("failed") else result


def _save(folder: str, host: str, report: Any) -> list[str]:
    """Write the reports of a host, and return a sentence where that fails: what was found counts more."""
    text = json.dumps(report, indent=4, sort_keys=True, default=str)
    try:
        write({f"{folder}/{host}.json": text, f"{folder}/{host}.xml": junit(report, host)})
    except AnsibleActionFail as error:
        return coded("NPU_REPORT_MISSING", [f"The report is missing: {error.message}"])
    return []
