# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that change a host: apply a state, and restore the state before the first bind."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, LayoutFile
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import without
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import lines_after, role_line
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import Settings
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import DIFFERENCES, Result, StepTask, comparison_options

LISTS = ("files", "removed")
WITHOUT_PLAN = (
    "Role npu.affinity.{0} applies the plan of a host, and host {1} has none: run role npu.affinity.plan before it in the same play, as "
    "docs/own-playbook.md shows."
)


def apply(task: StepTask, feature: str = "", entry: Result | None = None, drained: bool = False) -> Result:
    """Apply the desired state of the host, or an ``entry`` of its history, in one module call, and compare the host with it.

    A role applies its ``feature`` alone, and compares in a call of its own. ``drained``: the kubelet may restart.
    """
    state = entry["state"] if entry else task.variable("npu_affinity_state")
    if not state:
        return refused({"msg": WITHOUT_PLAN.format(feature, task.host)})
    if feature and not state["plan"]["npus"]:
        return {"skipped": True}
    result = _applied(task, state, feature, entry, drained)
    if result.get("failed") or (result["drain"] and not task.check_mode):
        return result
    if not feature:
        _leave_diff(task, result)
    lines: list[str] = []
    if feature:  # playbooks have a summary
        lines += without(lines_after(feature, state["notes"], result), state.get("muted") or {})
        if not (result.get("kubelet") or {}).get("pending"):
            lines.append(role_line(feature, task.host, result, task.check_mode))
    if task.check_mode == task.variables["ansible_check_mode"]:  # before npu_affinity_before_host, the same tasks look ahead in check mode
        task.say(lines)
    return result | {"lines": lines}


def _leave_diff(task: StepTask, result: Result) -> None:
    """Leave the diff of a host to the end of its batch, which shows equal ones once. That of the first host is shown at once."""
    diffs = result.get("diff") or []
    if task.shows_diff and diffs and all("prepared" in part for part in diffs):
        result[DIFFERENCES] = [line for part in diffs for line in part["prepared"].splitlines()]
        if len(task.variables["ansible_play_batch"]) > 1 or task.before_batch():
            del result["diff"]


def unbind(task: StepTask, drained: bool = False) -> Result:
    """Restore the state before the first bind, or say that the node has to be drained before."""
    settings = task.settings.of_features()
    options = {
        **_options(task, settings, drained),
        "npu_smi": settings["plan"]["npu_smi"] or None,
        "features": task.settings.of_playbooks()["features"],
        "ignore_busy": settings["device_share"]["ignore_busy"],
    }
    result = task.change("unbind", options)
    _leave_diff(task, result)
    return result | {"drain": options["kubelet_wait"] == 0 and bool(result.get("pending"))}


def _options(task: StepTask, settings: Settings, drained: bool) -> Result:
    """Return the options of both modules that change a host. ``drained``: the node is drained, so its kubelet may restart."""
    of_playbooks, kubelet = task.settings.of_playbooks(), settings["kubelet"]
    return {
        "root": settings["plan"]["root"],
        "author": of_playbooks["author"],
        "reason": of_playbooks["reason"],
        "run": task.run_of_playbook,
        "move_memory": settings["slices"]["move_memory"],
        "kubelet_wait": max(1, 2 * kubelet["wait"]) if drained else 0 if kubelet["restart"] else None,
    }


def _applied(task: StepTask, state: AppliedState, feature: str, entry: Result | None, drained: bool) -> Result:
    """Run module host_files with the settings of the host and the files that it places, and say whether the node waits for its drain."""
    settings, comparison = task.settings.of_features(), None
    if not feature:  # a role compares in a call of its own
        topology = task.variable("npu_affinity_topology")
        comparison = comparison_options(task.settings.of_role("verify"), settings["plan"]["timeout"], topology)
    options = {
        **_options(task, settings, drained),
        "state": state,
        "features": [feature] if feature else [],
        "action": "rollback" if entry else "bind",
        "compare": comparison,
    }
    if entry and not options["reason"]:
        options["reason"] = f"back to run {entry['run']['id']}"
    sources = {file["sha256"]: file["src"] for file in settings["vnpu"]["files"]}
    files = _soft_split(task, state, sources) if feature in ("", "vnpu") and not task.check_mode else {}
    result = task.change("host_files", options, files)
    vnpu, kubelet = result.get("vnpu") or {}, result.get("kubelet") or {}
    why = _not_copied(vnpu.get("missing") or (), sources, task.host)
    if why:
        return refused({"msg": why})
    merged = {name: [*vnpu.get(name, ()), *result.get(name, ())] for name in LISTS}
    return result | merged | {"drain": bool(kubelet.get("pending")) and settings["kubelet"]["restart"]}


def _soft_split(task: StepTask, state: AppliedState, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the files of the soft split that the controller has, by their SHA-256."""
    copied = {}
    layout = state["live"].get("vnpu")
    for file in layout["files"] if layout else ():
        if file["sha256"] in sources:
            why = _not_copied([file], sources, task.host)
            if why:  # the module fails if the host lacks it
                task.warn(why)
            else:
                copied[file["sha256"]] = sources[file["sha256"]]
    return copied


def _not_copied(missing: Sequence[LayoutFile], sources: Mapping[str, str], host: str) -> str:
    """Return why the files that are missing on a host cannot be copied, or an empty string; ``sources`` are paths by SHA-256."""
    for file in missing:
        if file["sha256"] not in sources:
            return (
                f"{file['name']} with SHA-256 {file['sha256']} is not on host {host}, and npu_affinity_vnpu_files names no such file: "
                "add it there with its src."
            )
    for file in missing:
        source = sources[file["sha256"]]
        checksum = _checksum(source)
        if checksum != file["sha256"]:
            return f"{source} has SHA-256 {checksum or 'none, there is no such file'}, and {file['name']} should have {file['sha256']}."
    return ""


def _checksum(path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
