# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that look at hosts without planning them: measure, archive, read archives, run the check of the user."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_data, shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._archives import reading
from ansible_collections.npu.affinity.plugins.plugin_utils._report.measures_table import measures_table
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import Result, StepTask, write

BEFORE = "before"
UNPLANNED = (
    "A measurement counts what disturbs the plan of a host, and host {0} has none: run role npu.affinity.plan before it in the same play, "
    "as playbook npu.affinity.measure does."
)
KEPT = ("seconds", "measured_at", "workloads", "remarks")
COMMAND = "npu_affinity_health"
EXITED = "non-zero return code"
"""Part of the message of ansible.builtin.command for a command that ran and failed."""
LINES, WIDTH = 5, 200
"""How much of each stream the message of a failed check shows."""
_NAME = r"(?:[\w-]*(?:token|passw(?:or)?d|secret|api[-_]?key|credential)s?|authorization)"
_SECRET = re.compile(
    rf"""(--{_NAME}[ =]["']?|{_NAME}["']? *[=:] *["']?(?:(?:bearer|basic) +)?)[^\s"'&]+|(?<=://)[^/\s@]+(?=@)""", re.IGNORECASE
)
"""The values of options, headers and addresses that authenticate."""


def measure(task: StepTask) -> Result:
    """Measure a host, keep the measurement on the controller, and print it next to an earlier one."""
    of_playbooks = task.settings.of_playbooks()
    topology, plan, state = (task.variable(f"npu_affinity_{name}") for name in ("topology", "plan", "state"))
    if not (topology and plan and state):
        raise AnsibleActionFail(UNPLANNED.format(task.host))
    options = {
        "root": task.settings.for_gathering()["root"],
        "plan": plan,
        "processes": [*state["processes"], {"devices": True}],
        "seconds": of_playbooks["measure_seconds"],
    }
    folder = Path(of_playbooks["measures"], task.host)
    label = of_playbooks["measure_label"] or ("after" if topology["applied"] else BEFORE)
    before = _earlier(folder / f"{BEFORE}.json") if label != BEFORE else None
    result = task.on_host("measure_info", options)
    if result.get("failed"):
        return result
    measurement = {"host": task.host, "label": label, **{key: result[key] for key in KEPT if key in result}}
    result["table"] = list(measures_table(measurement, before, label, BEFORE))
    try:
        result["files"] = write({str(folder / f"{label}.json"): json.dumps(measurement, indent=4, sort_keys=True)})
    except AnsibleActionFail:  # what was counted cannot be counted again
        task.say([f"{task.host}:", *result["table"]])
        raise
    return result


def _earlier(path: Path) -> Mapping[str, Any] | None:
    try:
        measurement: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        measures_table(measurement)
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise AnsibleActionFail(
            f"{path} cannot be read as a measurement ({type(error).__name__}: {error}); remove it, or set npu_affinity_measures to "
            "another directory."
        ) from error
    return measurement


def collect(task: StepTask) -> Result:
    """Archive a host, and fetch the archive, which nobody else may read on either side."""
    if task.check_mode:
        return {"skipped": True, "msg": "Nothing is packed in check mode."}
    if "npu_affinity_topology" not in task.variables:
        return {"skipped": True}
    of_playbooks = task.settings.of_playbooks()
    number = task.variables["ansible_play_hosts_all"].index(task.host) + 1
    target = Path(of_playbooks["archives"], f"host{number:03}.json" if of_playbooks["anonymous"] else f"{task.host}.json")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = task.on_host("ansible.builtin.tempfile", {"prefix": "npu-affinity-", "suffix": ".json"})["path"]
    asked = task.settings.for_gathering()
    options = {
        "dest": place,
        "host": task.host,
        "anonymous": of_playbooks["anonymous"],
        "settings": task.settings.to_archive(),
        **{name: asked[name] for name in ("root", "device_share", "units", "timeout")},
        "npu_smi": asked["npu_smi"] or None,
    }
    try:
        result = task.on_host("host_archive", options)
        if not result.get("failed"):
            _fetch(task, place, target)
            result["lines"] = [f"{task.host}: {target}"]
            task.say(result["lines"])
    finally:
        task.on_host("ansible.builtin.file", {"path": place, "state": "absent"})
    return result | {"changed": False, "archive": str(target)}


def _fetch(task: StepTask, place: str, target: Path) -> None:
    target.touch(mode=0o600)
    target.chmod(0o600)
    fetched = False
    try:
        fetched = not task.action("ansible.builtin.fetch", {"src": place, "dest": str(target), "flat": True}).get("failed")
    finally:
        if not fetched:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()


def open_archives(task: StepTask) -> Result:
    """Read archives, print why some cannot be read, and return the others with the settings that can be taken of them."""
    try:
        rows, refusals = reading.opened(task.settings.of_playbooks()["archives"])
    except (OSError, ValueError) as error:
        return refused({"msg": shown_lines(str(error))})
    task.say(refusals)
    rows = wrap_var(shown_data(rows, shown_lines))  # not to be taken for templates by ansible-core before 2.19
    for row in rows:
        row["settings"], row["refused_settings"] = features.from_archive(row["settings"])
        row["title"] = f"archive of {row['time']}"
    return {"archives": rows, "refused": refusals}


def reach(task: StepTask) -> Result:
    """Look whether a host answers. A host that answers and cannot run modules fails later, with a reason."""
    task.execute("ansible.builtin.ping", {})
    return {}


def check_health(task: StepTask) -> Result:
    """Run the command of the user that says whether a host is healthy, and fail the host if the command fails."""
    command = task.variable(COMMAND)
    options: dict[str, object] = {"_raw_params": command} if isinstance(command, str) else {"argv": command}
    try:
        result = task.execute("ansible.builtin.command", options)
    except AnsibleConnectionFailure as error:
        result = {"failed": True, "msg": str(error)}
    if result.get("failed") or result.get("rc"):
        return refused({"msg": failed_check(command, result)})
    return result | {"changed": False}


def failed_check(command: str | list[str], result: Result) -> str:
    """Return the message of a failed check: the command, how it ended, and the last lines of both streams, without secrets."""
    line = command if isinstance(command, str) else shlex.join(map(str, command))
    reason = str(result.get("msg") or "").rstrip(".")
    is_status = result.get("rc") is not None and (not reason or EXITED in reason)
    ended = f"exited with status {result['rc']}" if is_status else f"could not be run ({reason or 'no reason was given'})"
    message = f"{COMMAND} {ended}: {line}"
    for stream in ("stderr", "stdout"):
        if result.get(stream):
            last = "\n".join(f"  {text[:WIDTH]}" for text in str(result[stream]).strip().splitlines()[-LINES:])
            message += f"\nLast lines of {stream}:\n{last}"
    return _SECRET.sub(lambda secret: f"{secret[1] or ''}********", message)
