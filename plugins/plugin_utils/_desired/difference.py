# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan next to the plan in force: what every NPU, service, workload and vNPU has now and gets, and which services need a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding as _binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import environment as _environment
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import FIRST_LINE
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import drop_in_text
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number, members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import of_npu, pairs, with_slices

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import (
        Difference,
        DifferingNpu,
        DifferingUser,
        Plan,
        Topology,
    )

Named = Sequence[Mapping[str, Any]]


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
    environment: Mapping[str, Any] | None = None,
) -> Difference:
    """Return ``{in_force, npus, users, restart}``.

    ``in_force``: whether there is a plan in force. ``npus``: ``{npu, pci, slice, now, then, sentence}`` of all NPUs of both plans, with
    pools, None if there is none, and the sentence of :func:`_plan.moves.moves`, None on a first bind and where nothing differs.
    ``users``: ``{user, npus, cpus, mems, slice, now}`` of services, workloads and vNPUs, ``now`` None where nothing is known. ``restart``:
    the services whose drop-in a bind would write or remove. ``slices``: whether role slices is on. ``environment``: the setting of that
    name. A plan that a bind refuses has no slices and restarts nothing.
    """
    both = pairs(topology.get("applied"), plan)
    refused = bool(_binding.refusals(topology, plan, services, bound_by, workloads, vnpus))
    bound = None if refused else _binding.binding(topology, plan, services, bound_by, workloads, vnpus, limiter, visible_devices)
    placed = _environment.added(topology, plan, services, workloads, environment or {}, bound) if bound else ()
    return {
        "in_force": bool(both),
        "npus": [_npu(record, entry, next(of_npu(record, entry), None)) for record, entry in both]
        or [_npu(None, entry, None) for entry in plan["npus"]],
        "users": list(_users(topology, plan, services, workloads, bound)),
        "restart": [] if bound is None else _restart(topology, placed if slices else ()),
    }


def _npu(record: Mapping[str, Any] | None, entry: Mapping[str, Any] | None, sentence: str | None) -> DifferingNpu:
    known = entry or record or {}
    return {
        "npu": title(known),
        "pci": known["pci"],
        "slice": known["slice"],
        "now": record["pool"] if record else None,
        "then": entry["pool"] if entry else None,
        "sentence": sentence,
    }


def _users(topology: Topology, plan: Plan, services: Named, workloads: Named, bound: Mapping[str, Any] | None) -> Iterator[DifferingUser]:
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
        yield {
            "user": f"vNPU {vnpu['name']}",
            "npus": vnpu["of"].partition(" ")[2],
            "cpus": vnpu["pool"],
            "mems": vnpu["memory_nodes"],
            "slice": vnpu["slice"],
            "now": None,
        }


def _members(plan: Mapping[str, Any], names: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the entries of a plan that names stand for; none where one stands for none."""
    try:
        entries, unknown = members(plan, names)
    except ValueError:
        return []
    return [] if unknown else entries


def _restart(topology: Topology, services: Named) -> list[str]:
    """Return the services whose drop-in a bind would write or remove, except for those that the host does not have."""
    wanted = {entry["name"]: (FIRST_LINE + drop_in_text(entry)).strip() for entry in services}
    found = topology.get("drop_ins") or {}
    missing = topology.get("missing_units") or ()
    return sorted(unit for unit in wanted.keys() | found.keys() if wanted.get(unit) != found.get(unit) and unit not in missing)
