# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that look at hosts of a run together: their settings, plans, progress, results, page, and where a job has room."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ansible import context

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.module_utils._base.table import count
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import text_digest
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import refused
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import fleet, host_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.job import place as placed
from ansible_collections.npu.affinity.plugins.plugin_utils._report import export, runs, summary_text
from ansible_collections.npu.affinity.plugins.plugin_utils._report import summary as _summary
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Start, started
from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import report_html
from ansible_collections.npu.affinity.plugins.plugin_utils._report.progress import after_batch
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ARCHIVES, ReadOnce, now, record
from ansible_collections.npu.affinity.plugins.plugin_utils._review.file import review_file
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import hosts
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.of_host import HostSettings
from ansible_collections.npu.affinity.plugins.plugin_utils._steps.task import DIFFERENCES, DRIFT, RUN, Result, StepTask, records, write

NO_REQUEST = (
    "Say what the job asks for, for instance with "
    """-e '{"npu_affinity_request": {"npus": 2, "cpus": 32, "policy": "single-numa-node"}}'."""
)
ELSEWHERE = Start(options=("-i", "INVENTORY"))
"""How hosts are bound that the inventory of this run does not have: those of saved records and of archives."""
KEPT = "This host is bound, and what was applied is kept from the next change on."
_TIME = re.compile(r"T\d\d:\d\d:\d\dZ")
UNREACHABLE = "unreachable"
STOPPED = "__npu_affinity_stopped"
"""What approve_batch.yml sets."""


def say(task: StepTask, msg: str | list[str]) -> Result:
    """Print lines as they are, without quotes."""
    task.say(msg)
    return {"msg": msg}


def fail(task: StepTask, msg: str | list[str]) -> Result:
    """Fail the host with a message alone. ansible-core 2.19 and newer would add the lines of the playbook."""
    return refused({"msg": msg if isinstance(msg, str) else "\n".join(map(str, msg))})


def check_settings(task: StepTask) -> Result:
    """Fail a host with settings that nothing reads, or that cannot be followed."""
    refusals = [f"Host {task.host}: {sentence}" for sentence in task.settings.refusals()]
    return refused({"msg": "\n".join(refusals)}) if refusals else {}


def check_all_settings(task: StepTask) -> Result:
    """Return as a fact why settings of hosts of the play are refused, by host. Fail if those of all hosts are."""
    names, variables = task.variables["ansible_play_hosts_all"], task.variables["hostvars"]
    checked = {name: HostSettings(variables[name], task.settings.templar).refusals() for name in names}
    refusals = {name: why for name, why in checked.items() if why}
    if len(refusals) == len(names):
        return refused({"msg": "\n".join(summary_text.refused_settings(refusals, names, task.variables["groups"]))})
    return {"ansible_facts": {"__npu_affinity_refused": refusals}}


def show_plans(task: StepTask) -> Result:
    """Print each different plan once, with the hosts that have it, and write the files for review."""
    of_playbooks, hosts = task.settings.of_playbooks(), task.variables["hostvars"]
    lines = summary_text.plans(hosts, task.variables["ansible_play_hosts"])
    task.say(lines)
    texts: dict[str, str] = {}
    if of_playbooks["plan_file"]:
        place = of_playbooks["plan_file"].removesuffix(".json").removesuffix(".md")
        texts = {f"{place}.{kind}": text for kind, text in review_file(hosts, task.variables["ansible_play_hosts_all"]).items()}
    return {"lines": lines, "written": write(texts)}


def show_progress(task: StepTask, playbook: str) -> Result:
    """Print what the hosts of a batch said, once for all that say the same, and how far the playbook is."""
    names = task.variables["ansible_play_hosts_all"], task.variables["ansible_play_batch"]
    sizes = task.settings.of_playbooks()["batches"] if playbook in _summary.CHANGING else hosts.COMPARED
    before = task.before_batch()
    at = after_batch(task.variables["hostvars"], *names, {"playbook": playbook, "before": before, "batches": sizes}, task.check_mode)
    at["shown"], lines = _differences(task, "unbound" if playbook == "unbind" else "host_result", before.get("shown") or {})
    lines += summary_text.by_host(_of_batch(task, "verified", DRIFT))
    lines += [at["line"]] if at["batches"] > 1 else []
    task.say(lines)
    return {"at": at, "lines": lines}


def _differences(task: StepTask, result: str, shown: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the first host of each diff, by its digest, and the lines of the diffs of this batch that no earlier host had."""
    texts = _of_batch(task, result, DIFFERENCES)
    digests = {name: text_digest("\n".join(lines)) for name, lines in texts.items()}
    printed = _of_batch(task, result, "diff")
    lines = summary_text.alike({name: text for name, text in texts.items() if name not in printed and digests[name] not in shown})
    again: dict[str, list[str]] = {}
    for name, digest in digests.items():
        if digest in shown:
            again.setdefault(shown[digest], []).append(name)
    lines += [f"{summary_text.folded(names)}: the same as {first}" for first, names in again.items()]
    return {**{digest: name for name, digest in reversed(digests.items())}, **shown}, lines


def _of_batch(task: StepTask, result: str, key: str) -> Result:
    """Return what a task registered on the hosts of this batch under a key."""
    return {name: of[key] for name, of in task.registered(result, task.variables["ansible_play_batch"]).items() if of.get(key)}


def show_measures(task: StepTask) -> Result:
    """Print the measurements of all hosts, once for those that have the same."""
    tables = _of_batch(task, "measured", "table")
    if len(tables) > 1:  # the time of day would tell hosts apart that have the same counts
        tables = {name: [_TIME.sub("", head), *rows] for name, (head, *rows) in tables.items()}
    lines = summary_text.alike(tables, task.verbose)
    task.say(lines)
    return {"lines": lines}


def show_history(task: StepTask) -> Result:
    """Print the runs of the hosts of the play with what they changed, which hosts have none, and which did not answer."""
    results = task.registered("history", task.variables["ansible_play_hosts_all"])
    histories = {name: history["entries"] for name, history in results.items() if "entries" in history}
    none = {name: [KEPT if results[name]["bound"] else "This host is not bound."] for name, entries in histories.items() if not entries}
    failed = {name: [history["why"] if "why" in history else history["msg"]] for name, history in results.items() if name not in histories}
    lines = [f"SUMMARY of history, {count(len(results), 'host')}", *runs.listing(histories, task.verbose), *summary_text.by_host(none)]
    lines += [f"error on {line}" for line in summary_text.by_host(failed)]
    task.say(lines)
    return {"lines": lines}


def summarize(task: StepTask, playbook: str) -> Result:
    names = task.variables["ansible_play_hosts_all"]
    hosts = {name: ReadOnce(task.variables["hostvars"][name]) for name in names}
    stopped = next((host[STOPPED] for host in hosts.values() if STOPPED in host), "")
    lost = [name for name in names if name not in task.variables["ansible_play_hosts"]]
    summary = _summary.summary(hosts, playbook, task.check_mode, stopped, started(context.CLIARGS, os.environ), lost, RUN["id"])
    last = names[0] if list(summary["states"]) == [UNREACHABLE] else ""
    return {"summary": summary, "lines": list(summary_text.lines(summary, verbose=task.verbose)), "last": last}


def end(task: StepTask, state: str) -> Result:
    """Fail a host whose result was printed; one that did not answer ends as unreachable in the recap and the status of the run."""
    message = {"msg": f"{state}: the summary says why"}
    return {"unreachable": True, **message} if state == UNREACHABLE else refused(message)


def check_request(task: StepTask, request: Any = None) -> Result:
    """Fail where the request of a job is missing or wrong, before hosts are gathered."""
    if not isinstance(request, Mapping):
        return refused({"msg": NO_REQUEST})
    try:
        placed({}, request)
    except ValueError as error:
        return refused({"msg": f"npu_affinity_request: {shown_lines(str(error))}"})
    return {}


def place(task: StepTask, request: Any) -> Result:
    """Place a job on the hosts of the play, or on those of saved facts, and print the answer or write it as JSON."""
    facts, file = (task.variable(f"npu_affinity_{name}") for name in ("facts", "placement_file"))
    names = None if task.variables.get("ansible_limit") is None and facts is not None else task.variables["ansible_play_hosts_all"]
    try:
        saved = None if facts is None else _saved(Path(facts), names)
        placement = placed(fleet(task.variables["hostvars"], names or (), saved), request)
    except OSError as error:
        return refused({"msg": f"{error.filename} cannot be read on the controller: {error.strerror}"})
    except ValueError as error:
        return refused({"msg": f"npu_affinity_request: {shown_lines(str(error))}"})
    task.say(placement["table"])
    answer = {key: value for key, value in placement.items() if key != "table"}
    if file is None:
        task.say(json.dumps(answer))
    else:
        write({str(file): json.dumps(placement, indent=4) + "\n"})
    return {"placement": placement}


def _saved(folder: Path, names: Container[str] | None) -> dict[str, str]:
    """Return the texts of saved facts by file name: those of some hosts, or all."""
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: path.read_text(errors="replace") for name, path in files.items() if names is None or host_of(name) in names}


def write_report(task: StepTask) -> Result:
    """Write the page and the tables, from the results of this run or from files of earlier ones."""
    settings, names, variables = task.settings.of_role("report"), list(task.variables["ansible_play_hosts_all"]), task.variables["hostvars"]
    if settings["from"]:
        saved = records(settings["from"])
        names, documents = [Path(path).stem for path in saved], list(saved.values())
    else:
        documents = [record(name, variables[name]) for name in names]
    kinds = {path: Path(path).suffix.removeprefix(".") for path in settings["report"]}
    pages = [path for path, kind in kinds.items() if kind not in export.FORMATS]
    texts = {path: export.table(documents, kind) for path, kind in kinds.items() if kind in export.FORMATS}
    if pages:
        texts |= dict.fromkeys(pages, _page(task, names, documents, settings))
    write(texts)
    task.say([f"The page is {path}" for path in pages])
    return {"pages": pages}


def _page(task: StepTask, names: list[str], documents: list[Any], settings: Mapping[str, Any]) -> str:
    measures = task.settings.of_playbooks()["measures"]
    compared: list[Any] = [{"name": Path(folder).name, "records": list(records([folder]).values())} for folder in settings["runs"]]
    return report_html(
        documents,
        generated=now("%Y-%m-%d %H:%M UTC"),
        earlier=list(records(settings["runs"][-1:]).values()),
        measures=list(records(f"{measures}/{name}" for name in names).values()),
        runs=[*compared, {"name": "this run", "records": documents}] if compared else [],
        strategies=settings["strategies"],
        start=ELSEWHERE if settings["from"] or task.variables["groups"].get(ARCHIVES) else started(context.CLIARGS, os.environ),
    )
