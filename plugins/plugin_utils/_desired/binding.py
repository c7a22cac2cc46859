# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to what systemd must hold on a host: which slices, which drop-ins, and what the kernel must then grant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES, Engine
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, union
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.places import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import affinity, unconfined
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import visible_devices as _visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import confined, plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import NONE, SERVICES, SLICES, way
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number, members
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.hard import is_hard

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology


def binding(topology: Topology, plan: Plan, named: Named) -> dict[str, Any]:
    """Return what systemd must hold.

    Keys: ``method`` (slices, services, none), ``says`` (why), ``bound_by``, ``parents``, ``slices``,
    ``housekeeping`` (lists of ``{name, cpus, mems, description, wants}``), ``services`` (``{name, description, settings, environment,
    devices, switches, needs}`` with the lines of the drop-in in order, the variables that it sets, those that name the devices, set or
    not, those that switch in-process binding off, and a unit that must run before, or None), ``workloads`` (``{name, slice,
    npus}`` with the slices of their NPUs, and ``engine`` if given), ``vnpus`` (those of
    :func:`_vnpu.vnpus.vnpus`, with ``settings`` of the limiter), ``enabled`` and ``started`` (names of units that must start at boot, and
    run now; a limiter that its container's unit starts is neither) and ``expected`` (``{unit, cpus, mems}``, what the kernel must grant).
    CPUs and memory nodes are cpulists.
    Raises ``ValueError`` with the reasons why the plan must not be applied.
    """
    if reasons := plan_refusals(topology, plan, named):
        raise ValueError(" ".join(reasons))
    method, why = way(topology, plan)
    shares = _vnpus.vnpus(topology, plan, named.vnpus, named.limiter) if plan["npus"] else []
    why += _without_effect(topology, plan, named)
    alone = [vnpu["limiter"] for vnpu in shares if vnpu["limiter"] and not vnpu["unit"]]
    result: dict[str, Any] = {
        "method": method,
        "bound_by": named.bound_by,
        "summary": (why if method == NONE else f"{why} {workers.in_force(topology, plan, named.bound_by)}")
        + "".join(f" {_title(vnpu)}, CPUs {vnpu['pool']}." for vnpu in shares),
        **{key: [] for key in ("parents", "slices", "services", "workloads", "housekeeping", "expected")},
        "vnpus": [{**vnpu, "settings": _settings_of(vnpu, topology, method)} for vnpu in shares],
        "enabled": alone,
        "started": alone,
    }
    shared = [_shared(vnpu) for vnpu in result["vnpus"] if vnpu["unit"] and (vnpu["limiter"] or method != NONE)]
    if method == NONE:
        return result | {"services": shared}
    together = _workloads.workloads(plan, named.workloads, topology)
    homes = [*(None for _service in named.services), *(workload["slice"] for workload in together for _unit in workload["units"])]
    for (unit, entries, engine), home in zip(units_of(plan, named), homes, strict=True):
        variables = _variables(devices(topology, plan, named, entries), set_elsewhere(topology, unit), engine, named.bound_by)
        if method == SLICES:
            result["services"].append(_drop_in(unit, entries, _place(topology, entries, home, named.bound_by), variables))
        elif pool_of(entries):
            result["services"].append(_drop_in(unit, entries, _affinity(topology, entries), variables))
    result["services"] += shared
    return result if method == SERVICES else result | _slices(topology, plan, named.bound_by, together, result["vnpus"], alone)


def _without_effect(topology: Topology, plan: Plan, named: Named) -> str:
    """Return sentences on what the settings name for a host without effect, or is confined although it should not be; '' without any."""
    said = ""
    if found := confined(topology, plan):
        said += f" Housekeeping confines these programs, which use accelerators, to CPUs {plan['housekeeping']}: {', '.join(found)}."
    names = [entry["unit"] for entry in named.services] + [entry["name"] for entry in (*named.workloads, *named.vnpus)]
    if names and not plan["npus"]:
        said += f" What is named for this host has no effect: {', '.join(names)}."
    return said


def units_of(plan: Plan, named: Named) -> list[tuple[str, list[Mapping[str, Any]], Engine | None]]:
    """Return the units of services, then of workloads, each with the entries of its NPUs, and its engine if given."""
    units = [(str(service["unit"]), service) for service in named.services]
    units += [(str(unit), workload) for workload in named.workloads for unit in workload.get("units") or ()]
    return [(unit, members(plan, user["npus"])[0], ENGINES.get(user.get("engine") or "")) for unit, user in units]


def set_elsewhere(topology: Topology, unit: str) -> _visible_devices.Found:
    found: _visible_devices.Found = (topology.get("unit_environment") or {}).get(unit) or {}
    return found


def devices(topology: Topology, plan: Plan, named: Named, entries: Sequence[Mapping[str, Any]]) -> list[_visible_devices.Variables]:
    return _visible_devices.of_entries(topology, plan, entries) if named.names_devices else []


def mig_refusals(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return a sentence for each service of which nothing tells its MIG device."""
    if not named.names_devices or way(topology, plan)[0] == NONE:
        return []
    units = units_of(plan, named)
    told = [_visible_devices.mig_refusal(topology, unit, entries, set_elsewhere(topology, unit)) for unit, entries, _engine in units]
    return [sentence for sentence in told if sentence]


def _settings_of(vnpu: Mapping[str, Any], topology: Topology, method: str) -> dict[str, str]:
    """Return the lines that confine the limiter of a vNPU."""
    if method == SLICES:
        return {"Slice": vnpu["slice"]} | unconfined(topology, vnpu["pool"])
    return _affinity(topology, [vnpu]) if method == SERVICES else {}


def _slices(
    topology: Topology,
    plan: Plan,
    bound_by: str,
    together: Sequence[Mapping[str, Any]],
    shares: Sequence[Mapping[str, Any]],
    alone: Sequence[str],
) -> dict[str, Any]:
    """Return the slices of NPUs, workloads and vNPUs (``shares``), and what follows from them: parts of :func:`binding`'s result.

    ``alone`` are the limiters that no unit of a container starts.
    """
    held = [entry for entry in [*plan["npus"], *(plan.get("lost") or ())] if entry["pool"]]
    held.sort(key=lambda entry: kind_and_number(entry["slice"]))
    slices = [_slice(entry) for entry in held] if bound_by == "host" else []
    parts = [(f"Workload {workload['name']}", workload) for workload in together] + [(_title(vnpu), vnpu) for vnpu in shares]
    slices += [
        {"name": part["slice"], "description": what, "cpus": part["pool"], "mems": part["memory_nodes"]}
        for what, part in parts
        if part["pool"]
    ]
    parents = [
        {
            "name": f"{kind}.slice",
            "description": f"All {kind.upper()} workloads of this host",
            "cpus": plan["cpus"] if bound_by == workers.WORKERS and _is_part(plan) else pool_of(entries),
            "mems": _mems(entries),
            "wants": [unit["name"] for unit in slices if unit["name"].startswith(f"{kind}-")],
        }
        for kind in ("npu", "gpu")
        if (entries := [entry for entry in held if kind_and_number(entry["slice"])[0] == kind])
    ]
    names = [unit["name"] for unit in parents]
    housekeeping = [{"name": unit, "cpus": plan["housekeeping"], "mems": ""} for unit in HOUSEKEEPING_UNITS if plan["housekeeping"]]
    more = {"more": housekeeping_at_most(topology, plan)} if plan.get("follow") else {}
    confined = [{"unit": unit["name"], "cpus": unit["cpus"], "mems": "", **more} for unit in housekeeping]
    return {
        "parents": parents,
        "slices": slices,
        "housekeeping": housekeeping,
        "workloads": [
            {
                **{name: workload[name] for name in ("name", "slice", "engine") if name in workload},
                "npus": [entry["slice"] for entry in workload["processes"]],
            }
            for workload in together
        ],
        "enabled": [*names, *alone],
        "started": [*names, *(unit["name"] for unit in slices), *alone],
        "expected": [{"unit": unit["name"], "cpus": unit["cpus"], "mems": unit["mems"]} for unit in parents + slices] + confined,
    }


def housekeeping_at_most(topology: Topology, plan: Plan) -> str:
    """Return the CPUs that the system gets besides its own while no workload runs: those of all pools and of none.

    CPUs that are isolated or for poll threads run no work of the system.
    """
    pools = union(entry["pool"] for entry in [*plan["npus"], *(plan.get("lost") or ())])
    apart = {*expand((topology.get("cpus") or {}).get("isolated") or ""), *expand(plan.get("poll") or "")}
    return compress({*expand(pools), *expand(plan["quality"]["idle"])} - apart)


def _is_part(plan: Plan) -> bool:
    """Whether the plan has some NPUs of the host only. Workers divide by all of them, so they need the CPUs of all."""
    options = plan.get("options") or {}
    return any(options.get(name) is not None for name in ("npus", "visible_npus"))


def pool_of(entries: Sequence[Mapping[str, Any]]) -> str:
    return union(entry["pool"] for entry in entries)


def _mems(entries: Sequence[Mapping[str, Any]]) -> str:
    return union(map(memory_nodes, entries))


def _affinity(topology: Topology, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return affinity(topology.get("machine") or {}, pool_of(entries), union(entry["mems"] for entry in entries), _mems(entries))


def _slice(entry: Mapping[str, Any]) -> dict[str, Any]:
    kind, number = kind_and_number(entry["slice"])
    return {
        "name": entry["slice"],
        "description": f"Workloads of {kind.upper()} {number} ({entry['pci']})",
        "cpus": entry["pool"],
        "mems": memory_nodes(entry),
    }


def _place(topology: Topology, entries: Sequence[Mapping[str, Any]], home: str | None, bound_by: str) -> dict[str, str]:
    """The settings that put a service into its slice; with several NPUs and no workload slice, the union below the slice of all."""
    kind = kind_and_number(entries[0]["slice"])[0]
    shared = home is None and bound_by != "workers" and len(entries) > 1
    limits = {"AllowedCPUs": pool_of(entries), "AllowedMemoryNodes": _mems(entries)} if shared else {}
    own = entries[0]["slice"] if len(entries) == 1 and bound_by != "workers" else f"{kind}.slice"
    found = {"Slice": home or own, **{key: value for key, value in limits.items() if value}}
    return found | unconfined(topology, pool_of(entries))


def _variables(
    wanted: list[_visible_devices.Variables], elsewhere: _visible_devices.Found, engine: Engine | None, bound_by: str
) -> dict[str, Any]:
    """Return the variables that name the devices of a service (``wanted``) and that switch its engine's binding off, and those that our
    drop-in sets, given those set ``elsewhere``.

    ``arguments`` says what is to be typed besides, where that is an argument and not a variable.
    """
    switches = dict(engine.environment) if engine else {}
    return {
        "environment": _visible_devices.not_overriding(wanted, elsewhere) | switches,
        "devices": {name: value for variables in wanted for name, value in variables.items()},
        "switches": switches,
        "arguments": engine.arguments if engine and bound_by == workers.HOST else "",
    }


def _drop_in(unit: str, entries: Sequence[Mapping[str, Any]], settings: dict[str, str], variables: dict[str, Any]) -> dict[str, Any]:
    names = ", ".join(str(kind_and_number(entry["slice"])[1]) for entry in entries)
    arguments = variables.pop("arguments")
    return _service(unit, f"CPUs and memory of NPU {names}.{arguments and ' ' + arguments}", settings) | variables


def _service(unit: str, description: str, settings: dict[str, str], needs: str | None = None) -> dict[str, Any]:
    return {
        "name": unit,
        "description": description,
        "settings": settings,
        "environment": {},
        "devices": {},
        "switches": {},
        "needs": needs,
    }


def _title(vnpu: Mapping[str, Any]) -> str:
    """What a vNPU is called in unit files; with its quotas, so a change of them is a change of the units that follow only again."""
    if is_hard(vnpu):
        return f"vNPU {vnpu['name']}: hard vNPU {vnpu['vnpu_id']}, {vnpu['template']} of {vnpu['of']}"
    return f"vNPU {vnpu['name']}: {vnpu['memory_mib']} MiB and {vnpu['core']} percent of {vnpu['of']}"


def _shared(vnpu: Mapping[str, Any]) -> dict[str, Any]:
    return _service(vnpu["unit"], _title(vnpu) + ".", vnpu["settings"], vnpu["limiter"])
