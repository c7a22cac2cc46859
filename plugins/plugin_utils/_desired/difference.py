# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan beside the plan in force: what every NPU, service, workload and vNPU has now and gets, and which services have to be restarted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding as _binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import FIRST_LINE
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import drop_in_text
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number, members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import of_npu, pairs, with_slices

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology

Named = Sequence[Mapping[str, Any]]
Row = dict[str, Any]


def difference(
    topology: Topology,
    plan: Plan,
    services: Named = (),
    bound_by: str = "host",
    workloads: Named = (),
    vnpus: Named = (),
    limiter: bool = True,
    visible_devices: bool = True,
    slices: bool = True,
) -> dict[str, Any]:
    """Return ``{in_force, npus, users, restart}``.

    ``in_force``: whether there is a plan in force. ``npus``: ``{npu, pci, slice, now, then, sentence}`` of all NPUs of both plans, with
    pools, None where there is none, and the sentence of :func:`_plan.moves.moves`, None on a first bind and where nothing differs.
    ``users``: ``{user, npus, cpus, mems, slice, now}`` of services, workloads and vNPUs, ``now`` None where nothing is known. ``restart``:
    the services whose drop-in a bind would write or remove. ``slices``: whether role slices is on. A plan that a bind refuses has no
    slices and restarts nothing.
    """
    both = pairs(topology.get("applied"), plan)
    refused = bool(_binding.refusals(topology, plan, services, bound_by, workloads, vnpus))
    bound = None if refused else _binding.binding(topology, plan, services, bound_by, workloads, vnpus, limiter, visible_devices)
    return {
        "in_force": bool(both),
        "npus": [_npu(record, entry, next(of_npu(record, entry), None)) for record, entry in both]
        or [_npu(None, entry, None) for entry in plan["npus"]],
        "users": list(_users(topology, plan, services, workloads, bound)),
        "restart": [] if bound is None else _restart(topology, bound["services"] if slices else ()),
    }


def _npu(record: Mapping[str, Any] | None, entry: Mapping[str, Any] | None, sentence: str | None) -> Row:
    known = entry or record or {}
    pools = {key: of and of["pool"] for key, of in (("now", record), ("then", entry))}
    return {"npu": title(known), "pci": known["pci"], "slice": known["slice"], **pools, "sentence": sentence}


def _users(topology: Topology, plan: Plan, services: Named, workloads: Named, bound: Mapping[str, Any] | None) -> Iterator[Row]:
    homes: dict[str, str] = {}
    if bound and bound["method"] == _binding.SLICES:
        homes |= {entry["name"]: entry["settings"]["Slice"] for entry in bound["services"]}
        homes |= {f"workload {entry['name']}": entry["slice"] for entry in _workloads.workloads(plan, workloads, topology)}
    applied = with_slices(topology.get("applied") or {})
    named = [(str(entry.get("unit")), entry.get("npus")) for entry in services]
    named += [(f"workload {entry.get('name')}", entry.get("npus")) for entry in workloads]
    for user, npus in named:
        if entries := _members(plan, npus or ()):
            before = _members(applied, npus or ())
            yield {
                "user": user,
                "npus": ",".join(str(kind_and_number(entry["slice"])[1]) for entry in entries),
                "cpus": _workloads.union(entry["pool"] for entry in entries),
                "mems": _workloads.union(map(memory_nodes, entries)),
                "slice": homes.get(user),
                "now": _workloads.union(entry["pool"] for entry in before) if before else None,
            }
    for vnpu in (bound or {}).get("vnpus", ()):
        row = {"cpus": vnpu["pool"], "mems": vnpu["memory_nodes"], "slice": vnpu["slice"], "now": None}
        yield {"user": f"vNPU {vnpu['name']}", "npus": vnpu["of"].partition(" ")[2], **row}


def _members(plan: Mapping[str, Any], names: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the entries of a plan that names stand for; none where one stands for none."""
    try:
        entries, unknown = members(plan, names)
    except ValueError:
        return []
    return [] if unknown else entries


def _restart(topology: Topology, services: Named) -> list[str]:
    """Return the services whose drop-in a bind would write or remove, but for those that the host does not have."""
    wanted = {entry["name"]: (FIRST_LINE + drop_in_text(entry)).strip() for entry in services}
    found = topology.get("drop_ins") or {}
    missing = topology.get("missing_units") or ()
    return sorted(unit for unit in wanted.keys() | found.keys() if wanted.get(unit) != found.get(unit) and unit not in missing)
