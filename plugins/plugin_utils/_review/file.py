# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a fleet for review: every distinct machine, plan and state once, and which of them each host has; and why hosts are not bound
by it.

It is sorted and has no times, so that an unchanged fleet gives the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import changes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import problems
from ansible_collections.npu.affinity.plugins.plugin_utils._review.entry import differences, digest, Entry, plan_differences, review_entry
from ansible_collections.npu.affinity.plugins.plugin_utils._review.markdown import markdown

SCHEMA = 1
TABLES = {"machine": "machines", "in_force": "plans", "plan": "plans", "state": "states", "difference": "differences"}
"""Where the file has what of a host."""
ABOUT = "Plans of a fleet for review: written by playbook npu.affinity.plan, and applied by npu.affinity.bind with npu_affinity_reviewed."
Host = Mapping[str, Any]


def collect(variables: Mapping[str, Host], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what a run left of each host, in the order of their names: its entry with what is shown next to it, ``refused`` with the
    sentences why there is none, or ``unreachable``."""
    return {name: _collected(variables[name]) for name in sorted(names, key=_numbers_by_value)}


def _numbers_by_value(name: str) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)]


def _collected(host: Host) -> dict[str, Any]:
    if refused := host.get("__npu_affinity_refused") or (host.get("__npu_affinity_gathered") or {}).get("refusals"):
        return {"refused": [" ".join(str(sentence).split()) for sentence in refused]}
    state, topology = host.get("npu_affinity_state"), host.get("npu_affinity_topology")
    if not state or not topology:
        return {"unreachable": True}
    said = [*state["plan"]["warnings"], *problems(topology), *state["remarks"]]
    sentences = {"reason": state["plan"]["reason"], "summary": state["summary"], "remarks": list(dict.fromkeys(map(str, said)))}
    return {**review_entry(state, topology), "difference": state["difference"], **sentences}


def document(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the file of hosts as :func:`collect` returns them."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES.values()}

    def place(key: str, value: Any) -> Any:
        if key not in TABLES or value is None:
            return value
        tables[TABLES[key]][found := digest(value)] = value
        return found

    entries = {name: {key: place(key, value) for key, value in host.items()} for name, host in hosts.items()}
    return {"about": ABOUT, "schema": SCHEMA, "version": VERSION, "hosts": entries, **tables}


def text(found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


class Reviewed:
    """A file as somebody reviewed it. Raises ``ValueError`` with what it is instead."""

    def __init__(self, path: str, content: str | None) -> None:
        self.path = path
        if content is None:
            raise ValueError(f"there is no file {path} on the controller")
        try:
            self.found = json.loads(content)
        except (RecursionError, ValueError) as error:
            raise ValueError(f"{path} is not valid JSON ({error})") from error
        tables = ("hosts", *TABLES.values())
        if (
            not isinstance(self.found, dict)
            or not {"schema", "version", *tables} <= self.found.keys()
            or not all(isinstance(self.found[name], dict) for name in tables)
        ):
            raise ValueError(f"{path} is no file of plans that playbook npu.affinity.plan wrote with npu_affinity_plan_file")
        if (self.found["schema"], self.found["version"]) != (SCHEMA, VERSION):
            raise ValueError(f"{path} was written by npu.affinity {self.found['version']}, and this is {VERSION}, which may bind otherwise")

    def __contains__(self, name: str) -> bool:
        return name in self.found["hosts"]

    def host(self, name: str) -> dict[str, Any]:
        """Return what the file has of a host, as :func:`collect` returned it."""
        try:
            entry = self.found["hosts"][name]
            return {key: self.found[TABLES[key]][value] if key in TABLES and value else value for key, value in entry.items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"what {self.path} has of this host was changed by hand, and lacks {error}") from error


def review_file(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Return the text for programs, ``json``, and the text for people, ``md``, by the variables that a run left of each host."""
    hosts = collect(variables, names)
    return {"json": text(document(hosts)), "md": markdown(hosts)}


ADVICE = "Write the file again with playbook npu.affinity.plan and npu_affinity_plan_file, have it reviewed, and bind with that."


def refusals(entries: Mapping[str, Entry], files: Mapping[str, str | None]) -> dict[str, str]:
    """Return the sentence for each host that must not be bound. ``files`` are the contents of files by their paths, None for one that is
    not there."""
    try:
        reviewed = [Reviewed(path, content) for path, content in files.items()]
    except ValueError as error:
        return {name: _sentence(str(error)) for name in entries}
    found = {name: _refusal(name, entry, reviewed) for name, entry in entries.items()}
    return {name: _sentence(why) for name, why in found.items() if why}


def _sentence(why: str) -> str:
    return f"npu_affinity_reviewed: {why}. {ADVICE}"


def _refusal(name: str, now: Entry, reviewed: Iterable[Reviewed]) -> str:
    """Return why a host must not be bound, or an empty text."""
    files = list(reviewed)
    having = [file for file in files if name in file]
    if len(having) != 1:
        return (
            f"{_all(files)} {'has' if len(files) == 1 else 'have'} no plan of this host"
            if not having
            else f"{_all(having)} all have this host"
        )
    (file,) = having
    try:
        then = file.host(name)
        return _moved(file.path, then, now)
    except (KeyError, TypeError, ValueError) as error:
        return str(error) if isinstance(error, ValueError) else f"what {file.path} has of this host was changed by hand, and lacks {error}"


def _all(files: Sequence[Reviewed]) -> str:
    return " and ".join(file.path for file in files)


def _moved(path: str, then: Mapping[str, Any], now: Entry) -> str:
    """Return what is not as it was when the file was written. What was bound by the file already is as the file wants it."""
    if "refused" in then:
        return f"{path} has no plan of this host, because a bind was refused then: {' '.join(then['refused']).rstrip('.')}"
    if "unreachable" in then:
        return f"{path} has no plan of this host, which did not answer then"
    if not then["plan"]["npus"] and not now["plan"]["npus"]:
        return ""
    if changed := "; ".join(changes(then["machine"], now["machine"])):
        return f"the hardware is not what {path} was written for: {changed}"
    if now["in_force"] != then["plan"] and (changed := plan_differences(then["in_force"], now["in_force"])):
        return f"the plan in force is not the one that {path} compares with: {changed}"
    if changed := differences(then, now):
        return f"a bind would not do what {path} says: {changed}"
    return ""
