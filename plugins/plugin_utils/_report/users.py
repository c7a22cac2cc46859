# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What uses the NPUs of a host: the services and workloads of its settings, and what was found to have NPUs open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, union
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.pools import ADOPT, called
from ansible_collections.npu.affinity.plugins.module_utils._users.ranks import local_pages
from ansible_collections.npu.affinity.plugins.module_utils._users.sentences import title_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, title

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology


_OF_HOLDER = ("title", "cpus", "pool", "next", "command", "cause")


def holders_of(record: Mapping[str, Any], topology: Topology | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``[{title, cpus, pool, next, command, cause, outside}]`` of what has NPUs open and its ranks, first what is not placed as
    planned.

    ``next`` says what puts it there, and ``command`` is that as a command, '' where no command alone does it.
    """
    found = [{key: str(user.get(key) or "") for key in _OF_HOLDER} for user in record.get("outside") or ()]
    away: dict[str, dict[str, Any]] = {row["title"]: {**row, "outside": True} for row in found}
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in (topology.get("applied") or {}).get("npus") or ()}
    inside = []
    for user in topology.get("users") or ():
        if not user["processes"]:
            continue
        inside.append(_inside(called(user), union(process["cpus"] for process in user["processes"]), user["npus"], pools))
        for rank in user.get("ranks", ()):
            name, process = f"rank {rank['rank']} of {title_of(user)}", user["processes"][0].copy()
            process["pid"] = rank["pid"]
            title = called({**user, "name": name, "container": None, "npus": rank["npus"], "processes": [process]})
            row = _inside(title, rank["cpus"], rank["npus"], pools)
            if row["pool"] and user["kind"] != "pod" and not set(expand(row["cpus"])) <= set(expand(row["pool"])):
                row |= {"outside": True, "next": ADOPT}
            row = away.pop(title, row)
            inside.append(row | {"title": f"{title}, {local_pages(rank)}"})
    return sorted([*away.values(), *(row for row in inside if row["title"] not in away)], key=lambda row: not row["outside"])


def _inside(title: str, cpus: str, npus: Sequence[Mapping[str, Any]], pools: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    pool = union(pools.get((npu["kind"], npu["id"]), "") for npu in npus)
    return {"title": title, "cpus": cpus, "pool": pool, "next": "", "command": "", "cause": "", "outside": False}


def users_of(record: Mapping[str, Any], plan: Plan | None) -> list[dict[str, Any]]:
    """Return ``[{kind, name, units, npus, pool, mems}]`` of a record's settings. NPUs that the plan lacks are named as in the settings."""
    return [_user(*named, plan or {"npus": []}) for named in _named(record)]


def _named(record: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str], list[Any]]]:
    for service in record.get("services") or ():
        yield "service", str(service.get("unit") or ""), [], list(service.get("npus") or ())
    for workload in record.get("workloads") or ():
        units = [str(unit) for unit in workload.get("units") or ()]
        yield "workload", str(workload.get("name") or ""), units, list(workload.get("npus") or ())


def _user(kind: str, name: str, units: list[str], npus: list[Any], plan: Plan) -> dict[str, Any]:
    entries, unknown = members(plan, npus)
    return {
        "kind": kind,
        "name": name,
        "units": units,
        "npus": [*map(title, entries), *(f"{npu} (not in the plan)" for npu in unknown)],
        "pool": union(entry["pool"] for entry in entries),
        "mems": union(map(memory_nodes, entries)),
    }
