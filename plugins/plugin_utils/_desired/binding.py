# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to what systemd must hold on a host: which slices, which drop-ins, and what the kernel must then grant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, union
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import affinity, unconfined
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import NONE, SERVICES, SLICES, Work, method_of
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import confined, plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.variables import variables
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import Entry, kind_and_number, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import is_hard


def binding(topology: Topology, plan: Plan, work: Work) -> dict[str, Any]:
    """Return what systemd must hold.

    Keys: ``method`` (slices, services, none), ``summary`` (why, and what follows), ``bound_by``, ``parents``, ``slices``,
    ``housekeeping`` (lists of ``{name, cpus, mems, description, wants}``), ``services`` (``{name, description, settings, needs}`` with the
    lines of the drop-in in order and a unit that must run before, or None, and what :func:`variables` returns), ``workloads`` (``{name,
    slice, npus}`` with the slices of their NPUs, and ``engine`` if given), ``vnpus`` (those of :func:`_vnpu.vnpus.vnpus`, with ``settings``
    of the limiter), ``enabled`` and ``started`` (names of units that must start at boot, and run now; a limiter that its container's unit
    starts is neither) and ``expected`` (``{unit, cpus, mems}``, what the kernel must grant). CPUs and memory nodes are cpulists.
    Raises ``ValueError`` with the reasons why the plan must not be applied.
    """
    if reasons := plan_refusals(topology, plan, work):
        raise ValueError(" ".join(reasons))
    method, why = method_of(topology, plan)
    shares = _vnpus.vnpus(topology, plan, work.vnpus, work.limiter) if plan["npus"] else []
    vnpus: list[dict[str, Any]] = [{**vnpu, "settings": _settings_of(vnpu, topology, method)} for vnpu in shares]
    together = _workloads.workloads(plan, work.workloads, topology) if method != NONE else []
    parents, slices = _slices(plan, work.bound_by, together, vnpus) if method == SLICES else ([], [])
    confines = plan["housekeeping"] and method == SLICES
    housekeeping = [{"name": unit, "cpus": plan["housekeeping"], "mems": ""} for unit in HOUSEKEEPING_UNITS if confines]
    more = {"more": housekeeping_at_most(topology, plan)} if plan.get("follow") else {}
    why += _without_effect(topology, plan, work)
    if method != NONE:
        why += f" {workers.in_force(topology, plan, work.bound_by)}"
    names = [unit["name"] for unit in parents]
    alone = [vnpu["limiter"] for vnpu in vnpus if vnpu["limiter"] and not vnpu["unit"]]
    return {
        "method": method,
        "bound_by": work.bound_by,
        "summary": why + "".join(f" {_title(vnpu)}, CPUs {vnpu['pool']}." for vnpu in vnpus),
        "parents": parents,
        "slices": slices,
        "housekeeping": housekeeping,
        "services": [
            *(_services(topology, plan, work, together, method) if method != NONE else ()),
            *(_of_vnpu(vnpu) for vnpu in vnpus if vnpu["unit"] and (vnpu["limiter"] or method != NONE)),
        ],
        "workloads": list(map(_of_workload, together if method == SLICES else ())),
        "vnpus": vnpus,
        "enabled": [*names, *alone],
        "started": [*names, *(unit["name"] for unit in slices), *alone],
        "expected": [
            *({"unit": unit["name"], "cpus": unit["cpus"], "mems": unit["mems"]} for unit in parents + slices),
            *({"unit": unit["name"], "cpus": unit["cpus"], "mems": "", **more} for unit in housekeeping),
        ],
    }


def _without_effect(topology: Topology, plan: Plan, work: Work) -> str:
    """Return sentences on what the settings name for a host without effect, or is confined although it should not be; '' without any."""
    text = ""
    if programs := confined(topology, plan):
        text += f" Housekeeping confines these programs, which use accelerators, to CPUs {plan['housekeeping']}: {', '.join(programs)}."
    names = [entry["unit"] for entry in work.services] + [entry["name"] for entry in (*work.workloads, *work.vnpus)]
    if names and not plan["npus"]:
        text += f" Services, workloads and vNPUs of this host have no effect: {', '.join(names)}."
    return text


def _services(topology: Topology, plan: Plan, work: Work, together: Sequence[Entry], method: str) -> Iterator[dict[str, Any]]:
    homes = [*(None for _service in work.services), *(workload["slice"] for workload in together for _unit in workload["units"])]
    for (unit, entries, engine), home in zip(work.units(plan), homes, strict=True):
        if method == SERVICES and not _pool(entries):
            continue
        settings = _place(topology, entries, home, work.bound_by) if method == SLICES else _affinity(topology, entries)
        about = f"CPUs and memory of NPU {', '.join(str(kind_and_number(entry['slice'])[1]) for entry in entries)}."
        if engine and engine.arguments and work.bound_by == workers.HOST:
            about += f" {engine.arguments}"
        of_unit = variables(topology, plan, work, unit, entries, engine)
        yield {"name": unit, "description": about, "settings": settings, "needs": None, **of_unit}


def _of_workload(workload: Entry) -> dict[str, Any]:
    of_settings = {name: workload[name] for name in ("name", "slice", "engine") if name in workload}
    return {**of_settings, "npus": [entry["slice"] for entry in workload["processes"]]}


def _of_vnpu(vnpu: Entry) -> dict[str, Any]:
    """Return the drop-in of the unit that starts the container of a vNPU."""
    unset: dict[str, Any] = {"environment": {}, "devices": {}, "switches": {}}
    return {"name": vnpu["unit"], "description": f"{_title(vnpu)}.", "settings": vnpu["settings"], "needs": vnpu["limiter"], **unset}


def _settings_of(vnpu: Entry, topology: Topology, method: str) -> dict[str, str]:
    """Return the lines that confine the limiter of a vNPU."""
    if method == SLICES:
        return {"Slice": vnpu["slice"]} | unconfined(topology, vnpu["pool"])
    return _affinity(topology, [vnpu]) if method == SERVICES else {}


def _slices(
    plan: Plan, bound_by: str, together: Sequence[Entry], vnpus: Sequence[Entry]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the slices of all NPUs and of all GPUs, and those of NPUs, workloads and vNPUs in them."""
    held: list[Entry] = [entry for entry in [*plan["npus"], *(plan.get("lost") or ())] if entry["pool"]]
    held.sort(key=lambda entry: kind_and_number(entry["slice"]))
    parts = [(f"Workloads of {title(entry)} ({entry['pci']})", entry) for entry in held if bound_by == workers.HOST]
    parts += [(f"Workload {workload['name']}", workload) for workload in together] + [(_title(vnpu), vnpu) for vnpu in vnpus]
    slices = [
        {"name": part["slice"], "description": about, "cpus": part["pool"], "mems": memory_nodes(part)}
        for about, part in parts
        if part["pool"]
    ]
    options = plan.get("options") or {}
    # workers divide by all NPUs, so those of a part of them need the CPUs of all
    of_all = bound_by == workers.WORKERS and any(options.get(name) is not None for name in ("npus", "visible_npus"))
    parents = [
        {
            "name": f"{kind}.slice",
            "description": f"All {kind.upper()} workloads of this host",
            "cpus": plan["cpus"] if of_all else _pool(entries),
            "mems": _mems(entries),
            "wants": [unit["name"] for unit in slices if unit["name"].startswith(f"{kind}-")],
        }
        for kind in ("npu", "gpu")
        if (entries := [entry for entry in held if kind_and_number(entry["slice"])[0] == kind])
    ]
    return parents, slices


def housekeeping_at_most(topology: Topology, plan: Plan) -> str:
    """Return the CPUs that the system gets besides its own while no workload runs: those of all pools and of none.

    CPUs that are isolated or for poll threads run no work of the system.
    """
    pools = _pool([*plan["npus"], *(plan.get("lost") or ())])
    apart = {*expand((topology.get("cpus") or {}).get("isolated") or ""), *expand(plan.get("poll") or "")}
    return compress({*expand(pools), *expand(plan["quality"]["idle"])} - apart)


def _pool(entries: Iterable[Entry]) -> str:
    return union(entry["pool"] for entry in entries)


def _mems(entries: Iterable[Entry]) -> str:
    return union(map(memory_nodes, entries))


def _affinity(topology: Topology, entries: Sequence[Entry]) -> dict[str, str]:
    return affinity(topology.get("machine") or {}, _pool(entries), union(entry["mems"] for entry in entries), _mems(entries))


def _place(topology: Topology, entries: Sequence[Entry], home: str | None, bound_by: str) -> dict[str, str]:
    """The settings that put a service into its slice; with several NPUs and no workload slice, the union below the slice of all."""
    of_host, several = bound_by != workers.WORKERS, len(entries) > 1
    limits = {"AllowedCPUs": _pool(entries), "AllowedMemoryNodes": _mems(entries)} if home is None and of_host and several else {}
    default = f"{kind_and_number(entries[0]['slice'])[0]}.slice" if several or not of_host else entries[0]["slice"]
    return {"Slice": home or default, **{key: value for key, value in limits.items() if value}} | unconfined(topology, _pool(entries))


def _title(vnpu: Entry) -> str:
    """What a vNPU is called in unit files; with its quotas, so a change of them is a change of the units that follow only again."""
    if is_hard(vnpu):
        return f"vNPU {vnpu['name']}: hard vNPU {vnpu['vnpu_id']}, {vnpu['template']} of {vnpu['of']}"
    return f"vNPU {vnpu['name']}: {vnpu['memory_mib']} MiB and {vnpu['core']} percent of {vnpu['of']}"
