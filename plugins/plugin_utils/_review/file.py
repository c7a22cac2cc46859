# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a fleet for review: every distinct machine, plan and state once, with its hosts; and why hosts are not bound by it.

An entry of a host is ``{machine, in_force, plan, state}``: what a bind applies, and neither times nor what a host is doing at the moment,
so that an unchanged fleet gives the same file. Contents of files are held as digests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.module_utils._state.difference import REST, difference, plan_steps
from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import changes, hardware
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import problems
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import with_slices
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import listed
from ansible_collections.npu.affinity.plugins.plugin_utils._review.markdown import markdown

Entry = Mapping[str, Any]
SCHEMA = 1
TABLES = {"machine": "machines", "in_force": "plans", "plan": "plans", "state": "states", "difference": "differences"}
"""Where the file has what of a host."""
ABOUT = "Plans of a fleet for review: written by playbook npu.affinity.plan, and applied by npu.affinity.bind with npu_affinity_reviewed."
ADVICE = "Write the file again with playbook npu.affinity.plan and npu_affinity_plan_file, have it reviewed, and bind with that."
PLAN = ("strategy", "cpus", "housekeeping", "npus", "lost")
"""What a plan decides; the rest of it says why."""
UNITS = ("enabled", "started", "stopped", "released", "restarted")
NOTHING: Entry = {"features": {}, "files": [], "units": "", "live": {}, "settings": {}}
SHOWN = 5
"""So many differences are named, and the others counted."""


def review_file(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return the text for programs, ``json``, and the text for people, ``md``, by the variables that a run left of each host."""

    def numbers_by_value(name: str) -> list[Any]:
        return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]

    hosts = {name: _collected(variables[name]) for name in sorted(names, key=numbers_by_value)}
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES.values()}

    def place(key: str, value: Any) -> Any:
        if key not in TABLES or value is None:
            return value
        digest = _digest(value)
        tables[TABLES[key]][digest] = value
        return digest

    entries = {name: {key: place(key, value) for key, value in host.items()} for name, host in hosts.items()}
    document = {"about": ABOUT, "schema": SCHEMA, "version": VERSION, "hosts": entries, **tables}
    return {"json": json.dumps(document, indent=1, sort_keys=True) + "\n", "md": markdown(hosts)}


def _collected(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run left of a host: its entry with what is shown next to it, ``refused`` with sentences, or ``unreachable``."""
    if refused := host.get("__npu_affinity_refused") or (host.get("__npu_affinity_gathered") or {}).get("refusals"):
        return {"refused": [" ".join(str(sentence).split()) for sentence in refused]}
    state, topology = host.get("npu_affinity_state"), host.get("npu_affinity_topology")
    if not state or not topology:
        return {"unreachable": True}
    remarks = dict.fromkeys(map(str, [*state["plan"]["warnings"], *problems(topology), *state["remarks"]]))
    sentences = {"reason": state["plan"]["reason"], "summary": state["summary"], "remarks": list(remarks)}
    return {**review_entry(state, topology), "difference": state["difference"], **sentences}


def review_entry(state: Mapping[str, Any], topology: Topology) -> dict[str, Any]:
    """Return the entry of a host by its desired state. Settings count, too: some change what a bind does and no file (moving memory)."""
    of_state = {
        "features": state["features"],
        "files": [{"path": file["path"], "content": _digest([file["content"], file["mode"]])} for file in state["files"]],
        "units": _digest([state[name] for name in UNITS]),
        "live": {feature: _digest(wanted) for feature, wanted in state["live"].items()},
        "settings": {name: _digest(value) for name, value in state["settings"].items()},
    }
    in_force, plan = (
        {key: plan[key] for key in PLAN if plan.get(key)} | {"npus": with_slices(plan)["npus"]} if plan else None
        for plan in cast("tuple[Any, ...]", (topology.get("applied"), state["plan"]))
    )
    return {"machine": hardware(topology), "in_force": in_force, "plan": plan, "state": of_state if state["plan"]["npus"] else None}


def _digest(value: Any) -> str:
    """Return the same short text for equal values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def refusal(name: str, now: Entry, files: Mapping[str, str | None]) -> str:
    """Return why a host must not be bound, or ''. ``files``: contents of the reviewed files by path, None for one that is not there."""
    try:
        why = _refusal(name, now, {path: _document(path, content) for path, content in files.items()})
    except ValueError as error:
        why = str(error)
    return f"npu_affinity_reviewed: {why}. {ADVICE}" if why else ""


def _document(path: str, content: str | None) -> dict[str, Any]:
    """Return a file as somebody reviewed it. Raises ``ValueError`` with what it is instead."""
    if content is None:
        raise ValueError(f"there is no file {path} on the controller")
    try:
        document = json.loads(content)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path} is not valid JSON ({error})") from error
    tables, keys = ("hosts", *TABLES.values()), document.keys() if isinstance(document, dict) else ()
    if not {"schema", "version", *tables} <= set(keys) or not all(isinstance(document[name], dict) for name in tables):
        raise ValueError(f"{path} is not a file of plans that playbook npu.affinity.plan wrote with npu_affinity_plan_file")
    if (document["schema"], document["version"]) != (SCHEMA, VERSION):
        raise ValueError(f"{path} was written by npu.affinity {document['version']}, and this is {VERSION}, which may bind otherwise")
    return cast("dict[str, Any]", document)


def _refusal(name: str, now: Entry, documents: Mapping[str, dict[str, Any]]) -> str:
    having = [path for path, document in documents.items() if name in document["hosts"]]
    if len(having) != 1:
        paths = " and ".join(having or documents)
        return f"{paths} all have this host" if having else f"{paths} {'has' if len(documents) == 1 else 'have'} no plan of this host"
    document, entry = documents[having[0]], documents[having[0]]["hosts"][name]
    try:
        then = {key: document[TABLES[key]][value] if key in TABLES and value else value for key, value in entry.items()}
        return _moved(having[0], then, now)
    except (AttributeError, KeyError, TypeError) as error:
        return f"what {having[0]} has of this host was changed by hand, and lacks {error}"


def _moved(path: str, then: Entry, now: Entry) -> str:
    """Return what is not as it was when the file was written. What was bound by the file already is as the file wants it."""
    if "refused" in then:
        return f"{path} has no plan of this host, because a bind was refused then: {' '.join(then['refused']).rstrip('.')}"
    if "unreachable" in then:
        return f"{path} has no plan of this host, which did not answer then"
    if not then["plan"]["npus"] and not now["plan"]["npus"]:
        return ""
    if changed := "; ".join(changes(then["machine"], now["machine"])):
        return f"the hardware is not what {path} was written for: {changed}"
    if now["in_force"] not in (then["plan"], then["in_force"]):
        return f"the plan in force is not the one that {path} compares with: {_plan_differences(then['in_force'], now['in_force'])}"
    if (then["plan"], then["state"]) != (now["plan"], now["state"]):
        return f"a bind would not do what {path} says: {_differences(then, now)}"
    return ""


def _plan_differences(then: Entry | None, now: Entry | None) -> str:
    """Return in what two plans differ, of which one may be missing."""
    if then is None or now is None:
        return f"there was {'none' if then is None else 'one'} and is {'none' if now is None else 'one'} now"
    return "; ".join(listed([text for _mark, text in plan_steps(dict(then), dict(now))], SHOWN)) or "they have other NPUs"


def _differences(then: Entry, now: Entry) -> str:
    before, after = ({**(entry["state"] or NOTHING), "plan": entry["plan"]} for entry in (then, now))
    lines = difference(cast("AppliedState", after), cast("AppliedState", before))
    if lines == [REST] and before["units"] == after["units"]:
        names = before["settings"].keys() | after["settings"].keys()
        lines = [f"{name} has another value" for name in sorted(names) if before["settings"].get(name) != after["settings"].get(name)]
    return "; ".join(listed(lines, SHOWN)).replace(REST, "units differ")
