# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services and workloads of a host, with the CPUs and memory nodes that a plan has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, title

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan


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
