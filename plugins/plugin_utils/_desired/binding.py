# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a plan to what systemd must hold on a host: which slices, which drop-ins, and what the kernel must then grant.

The rules (decisions 1, 2 and 8 of the design):

* cgroup v2 with the controller cpuset, and systemd >= 244: ``AllowedCPUs=`` and ``AllowedMemoryNodes=`` on slices
  (systemd.resource-control(5)).
* other hosts: systemd ignores these. The services that the user names get ``CPUAffinity=``, and with systemd >= 243
  ``NUMAPolicy=`` and ``NUMAMask=`` (systemd.exec(5)).
* static kubelet: the kubelet owns the CPUs. No slices; a sentence names the CPUs for ``reservedSystemCPUs``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.module_utils._base.engines import ENGINES, Engine
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import CONTROLLERS, sets_cpus
from ansible_collections.npu.affinity.plugins.module_utils._users.sentences import processes_of, title_of
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes, numa_policy
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import visible_devices as _visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import is_lost, kind_and_number, members, title, unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import forecast, pods
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import moves
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

SLICES, SERVICES, NONE = "slices", "services", "none"
_SWITCH = "npu_affinity_slices_enabled is false"
OFF = f"Workloads get no slices, because {_SWITCH}."
HOUSEKEEPING_UNITS = ("system.slice", "user.slice", "init.scope")
_NEEDED_BY = {
    "python3": "the units npu-affinity-*.service run",
    "systemctl": "the udev rule 90-npu-affinity.rules runs when a driver loads, and a bind itself needs",
}
_PACKAGES = {"python3": "Python 3.7 or newer, usually package python3", "systemctl": "usually package systemd"}
_FOR_GOOD = "What was bound waits for them; when they are gone for good, unbind the host (playbook npu.affinity.unbind)."
_SERVICE = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.service")


def way(topology: Topology, plan: Plan) -> tuple[str, str]:
    """Return how workloads are bound on this host (slices, services or none) and the sentence that says why."""
    machine = topology.get("machine") or {}
    kubelet = topology.get("kubelet") or {}
    systemd = machine.get("systemd")
    if not plan["npus"]:
        bound = len(((topology.get("applied") or {}).get("npus")) or ())
        return NONE, (
            f"None of the {bound} accelerators that this host was bound for can be found. Nothing is changed. {_FOR_GOOD}"
            if bound
            else "There is no accelerator on this host: nothing is bound, and nothing is written."
        )
    if kubelet.get("policy") == "static":
        reserved = union(entry["irq"] for entry in plan["npus"])
        housekeeping = f" and the housekeeping CPUs {plan['housekeeping']}" if plan["housekeeping"] else ""
        return NONE, (
            "The kubelet's CPU manager is static and owns the CPUs, so no slices are written. Let its reservedSystemCPUs cover the "
            f"IRQ CPUs {reserved or '(none)'}{housekeeping}."
        )
    if sets_cpus(machine):
        return SLICES, "Workloads are bound by systemd slices (cgroup v2)."
    lacks = f" without the controller cpuset ({CONTROLLERS} does not list it)" if machine.get("cpusets") is False else ""
    found = f"cgroup {machine.get('cgroup') or 'of unknown version'}{lacks}, systemd {systemd or 'of unknown version'}"
    return SERVICES, (
        f"This host has {found}, where systemd ignores AllowedCPUs= on slices (cgroup v2 with cpusets and systemd 244 are needed). The "
        "services named in npu_affinity_services get CPUAffinity= instead. Other workloads are bound only by npu_affinity_adopt=now or "
        "always, while they run. Interrupts are bound as elsewhere."
    )


def affinity(machine: Mapping[str, Any], cpus: str, nearest: str, allowed: str) -> dict[str, str]:
    """Return the settings of a service where systemd cannot hold CPU sets (systemd.exec(5)). ``NUMAPolicy=`` needs systemd 243.

    ``nearest`` and ``allowed`` are memory nodes, as :func:`_state.plan_file.numa_policy` takes them.
    """
    policy = numa_policy(nearest, allowed) if (machine.get("systemd") or 0) >= 243 else None
    return {"CPUAffinity": cpus} | (dict(zip(("NUMAPolicy", "NUMAMask"), policy, strict=True)) if policy else {})


def refusals(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return one sentence for everything that makes applying this plan unsafe or impossible; none when it may be applied."""
    services, workloads, vnpus, bound_by = named.services, named.workloads, named.vnpus, named.bound_by
    sentences = [Sentence("NPU_RULE_FAILS", violation) for violation in plan.get("violations") or ()]
    if not plan["npus"] and topology.get("problems"):
        sentences.append(Sentence("NPU_SMI_UNAVAILABLE", "No NPU of this host can be planned: " + " ".join(topology["problems"])))
        sentences += [Sentence("NPU_SMI_UNAVAILABLE", _FOR_GOOD)] if topology.get("applied") else []
    if not plan["npus"]:
        return sentences
    if bound_by not in workers.BOUND_BY:
        sentences.append(
            Sentence("NPU_SETTING_INVALID", f"npu_affinity_bound_by is '{bound_by}'; it must be one of {' or '.join(workers.BOUND_BY)}.")
        )
    elif differs := workers.refusal(topology, plan, bound_by):
        sentences.append(differs)
    for service in services:
        unit, npus = str(service.get("unit", "")), service.get("npus") or []
        if not npus:
            sentences.append(Sentence("NPU_SETTING_INVALID", f"npu_affinity_services: {unit} names no NPU."))
        if unknown := unknown_npus("npu_affinity_services", unit, npus, plan):
            sentences.append(unknown)
    for name, entry in [(entry.get("unit"), entry) for entry in services] + [(entry.get("name"), entry) for entry in workloads]:
        if entry.get("engine") and entry["engine"] not in ENGINES:
            sentences.append(
                Sentence("NPU_SETTING_INVALID", f"{name}: engine is '{entry['engine']}'; it must be one of {', '.join(ENGINES)}.")
            )
    sentences += _workloads.refusals(plan, workloads, services)
    whole = {str(service.get("unit", "")): service.get("npus") or () for service in services}
    whole |= {str(workload.get("name", "")): workload.get("npus") or () for workload in workloads}
    sentences += _vnpus.refusals(topology, plan, vnpus, bound_by, whole, named.device_share)
    units = [str(service.get("unit", "")) for service in services]
    units += [str(unit) for workload in workloads for unit in workload.get("units") or ()]
    units += [str(vnpu["unit"]) for vnpu in vnpus if vnpu.get("unit")]
    for unit in sorted(set(units)):
        if not _SERVICE.fullmatch(unit):
            sentences.append(Sentence("NPU_SETTING_INVALID", f"'{unit}' is not the name of a systemd service, such as vllm@0.service."))
        if units.count(unit) > 1:
            sentences.append(
                Sentence(
                    "NPU_SETTING_INVALID", f"{unit} is named more than once in npu_affinity_services, _workloads and _vnpus; name it once."
                )
            )
    return sentences


def warnings(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return one sentence for everything that the user should look at in what the settings name. They must not be :func:`refusals`."""
    sentences = []
    users: dict[str, list[str]] = {}
    for user, names in named.users():
        entries = members(plan, names)[0]
        if gone := [entry for entry in entries if is_lost(plan, entry)]:
            npus = " and ".join(f"{title(entry)} (PCI {entry['pci']})" for entry in gone)
            homes = " and ".join(str(entry["slice"]) for entry in gone)
            sentences.append(
                Sentence(
                    "NPU_CARD_LOST",
                    f"{user} has the CPUs of {homes}, although {npus} cannot be found; name another NPU to move it.",
                )
            )
        for entry in entries if user.endswith(".service") else ():
            users.setdefault(title(entry), []).append(user)
    sentences += [
        Sentence("NPU_CPUS_SHARED", f"{' and '.join(units)} all use {npu}, and share its CPUs.")
        for npu, units in users.items()
        if len(units) > 1
    ]
    for unit, entries, engine in units_of(plan, named) if way(topology, plan)[0] != NONE else ():
        wanted, found = _devices(plan, named, entries), set_elsewhere(topology, unit)
        sentences += _visible_devices.differing(unit, entries, wanted, found)
        sentences += _overridden(unit, engine, found) if engine else _binding_itself(unit, found)
    return sentences + _vnpus.inconsistencies(topology, plan, named.vnpus, named.device_share)


@remark("NPU_VARIABLE_KEPT")
def _overridden(unit: str, engine: Engine, found: _visible_devices.Found) -> list[str]:
    """Return a sentence for every switch of a service's engine that another file sets otherwise, and wins."""
    return [
        f"{of['file']} sets {name}={of['value']}, which overrides the drop-in of {unit} with {name}={value}: {engine.title} then "
        "binds itself. Remove it there."
        for name, value in engine.environment.items()
        if (of := found.get(name)) and of["wins"] and of["value"] != value
    ]


@remark("NPU_WORKER_BINDS_ITSELF")
def _binding_itself(unit: str, found: _visible_devices.Found) -> list[str]:
    """Return a sentence for every switch by which the program of a service without an engine binds itself."""
    return [
        f"{of['file']} sets {name}={of['value']}: {ENGINES[engine].title} then binds itself on the CPUs of {unit}. Add engine: {engine} to "
        "its entry, or remove the variable there."
        for engine, name in (("sglang", "SGLANG_SET_CPU_AFFINITY"), ("mindie", "BIND_CPU"))
        if (of := found.get(name)) and of["value"].lower() in ("1", "true", "yes")
    ]


def units_of(plan: Plan, named: Named) -> list[tuple[str, list[Mapping[str, Any]], Engine | None]]:
    """Return the units of services, then of workloads, each with the entries of its NPUs, and its engine if given."""
    units = [(str(service["unit"]), service) for service in named.services]
    units += [(str(unit), workload) for workload in named.workloads for unit in workload.get("units") or ()]
    return [(unit, members(plan, user["npus"])[0], ENGINES.get(user.get("engine") or "")) for unit, user in units]


def set_elsewhere(topology: Topology, unit: str) -> _visible_devices.Found:
    found: _visible_devices.Found = (topology.get("unit_environment") or {}).get(unit) or {}
    return found


def _devices(plan: Plan, named: Named, entries: Sequence[Mapping[str, Any]]) -> list[_visible_devices.Variables]:
    return _visible_devices.of_entries(plan, entries) if named.names_devices else []


def remarks(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return what a bind of this plan would move, what the kubelet holds and does, and the :func:`warnings`; nothing without an NPU."""
    if not plan["npus"]:
        return []
    moved = moves(topology.get("applied"), plan, named.users())
    return moved + pods.remarks(topology, plan) + forecast.remarks(topology, plan) + warnings(topology, plan, named)


def with_kubelet(topology: Topology, policy: str) -> Topology:
    """Return the topology of a host whose kubelet gets this policy of the CPU manager by the same bind; '' leaves it as it is."""
    kubelet = topology.get("kubelet")
    return {**topology, "kubelet": {**kubelet, "policy": policy}} if policy and kubelet else topology


@remark("NPU_NO_EFFECT")
def without_slices(topology: Topology, plan: Plan, named: Named) -> list[str]:
    """Return a sentence on each variable that has no effect on something because the host gets no slices."""
    method = way(topology, plan)[0]
    if method == SLICES or not plan["npus"]:
        return []
    if method == NONE:
        named_here = {
            "npu_affinity_services": [str(service["unit"]) for service in named.services],
            "npu_affinity_workloads": [str(workload["name"]) for workload in named.workloads],
        }
        why = "the kubelet's CPU manager is static, and only pods get CPUs of NPUs. Run this work in pods, or remove it from the variable."
        return [f"{no_effect(name, ', '.join(found))}: {why}" for name, found in named_here.items() if found]
    said = []
    if plan["housekeeping"]:
        said.append(
            f"{no_effect('npu_affinity_housekeeping', ', '.join(HOUSEKEEPING_UNITS))}: systemd cannot confine them on this host. CPUs "
            f"{plan['housekeeping']} belong to no pool, but the system may also run in pools."
        )
    if unbound := [str(workload["name"]) for workload in named.workloads if not workload.get("units")]:
        said.append(
            f"{no_effect('npu_affinity_workloads', ', '.join(unbound))}: this host binds services only. List those of the workload in "
            "its units."
        )
    return said


@remark("NPU_NO_EFFECT")
def slices_off(plan: Plan, named: Named, places_threads: bool) -> list[str]:
    """Return a sentence on each variable that has no effect on something because the user switched slices off.

    ``places_threads``: whether feature threads, which reads services and workloads as well, is on.
    """
    idle = {
        "npu_affinity_services": [] if places_threads else [str(service["unit"]) for service in named.services],
        "npu_affinity_workloads": [
            str(workload["name"]) for workload in named.workloads if not (places_threads and workload.get("units") or workload.get("roles"))
        ],
        "npu_affinity_vnpus": [str(vnpu["name"]) for vnpu in named.vnpus],
        "npu_affinity_housekeeping": list(HOUSEKEEPING_UNITS) if plan["housekeeping"] else [],
    }
    return [f"{no_effect(name, ', '.join(found))}: {_SWITCH}." for name, found in idle.items() if found and plan["npus"]]


def _confined(topology: Topology, plan: Plan) -> list[str]:
    """Return what has accelerators open in the units that housekeeping confines, one text for every unit."""
    if not plan["npus"] or not plan["housekeeping"] or way(topology, plan)[0] != SLICES:
        return []
    return [
        f"{title_of(user)} in {top} ({processes_of(user)}; {', '.join(f'/dev/{name}' for name in user['devices']) or 'listed by npu-smi'})"
        for user in topology.get("users") or ()
        if user["processes"] and (top := user["group"].split("/")[1]) in HOUSEKEEPING_UNITS
    ]


def holder_refusals(topology: Topology, plan: Plan, confine: bool) -> list[Sentence]:
    """Return a sentence when new housekeeping would confine what uses accelerators, unless that is wanted (``confine``)."""
    in_force = (topology.get("applied") or {}).get("housekeeping") or ""
    found = _confined(topology, plan)
    if confine or not found or in_force == plan["housekeeping"]:
        return []
    return [
        Sentence(
            "NPU_HOUSEKEEPING_CONFINES",
            f"npu_affinity_housekeeping would confine these programs, which use accelerators, to CPUs {plan['housekeeping']}: "
            f"{', '.join(found)}. "
            "Start them in the slices of their NPUs first (a service: bind without housekeeping, with npu_affinity_services, restart it; "
            f"a container: docker run --cgroup-parent={plan['npus'][0]['slice']}), or confine them with "
            "npu_affinity_housekeeping_confine_holders: true.",
        )
    ]


def program_refusals(topology: Topology) -> list[Sentence]:
    """Return a sentence for every program that the host needs for what a bind writes, and does not have."""
    missing = [name for name, path in sorted((topology.get("programs") or {}).items()) if path is None]
    return [
        Sentence(
            "NPU_PROGRAM_MISSING",
            f"This host has no program {name}, which {_NEEDED_BY[name]}: install it ({_PACKAGES[name]}), and bind again.",
        )
        for name in missing
    ]


def driver_refusals(topology: Topology) -> list[Sentence]:
    """Return a sentence when the NPUs of a host have an older driver than device share may be switched on with."""
    if not any(npu.get("kind", "npu") == "npu" for npu in topology["npus"]):
        return []
    version = (topology.get("driver") or {}).get("version")
    if version and not is_older(version, OLDEST_DRIVER):
        return []
    found = f"the Ascend driver is {version}" if version else "the version of the Ascend driver is not known"
    return [
        Sentence(
            "NPU_DRIVER_TOO_OLD",
            f"npu_affinity_device_share_enabled: {found}, and {OLDEST_DRIVER} or newer is required; update the driver first.",
        )
    ]


def binding(topology: Topology, plan: Plan, named: Named) -> dict[str, Any]:
    """Return what systemd must hold.

    Keys: ``method`` (slices, services, none), ``says`` (why), ``bound_by``, ``parents``, ``slices``,
    ``housekeeping`` (lists of ``{name, cpus, mems, description, wants}``), ``services`` (``{name, description, settings, environment,
    devices, switches, needs}`` with the lines of the drop-in in order, the variables that it sets, those that name the devices, set or
    not, those that switch in-process binding off, and a unit that must run before, or None), ``workloads`` (``{name, slice,
    npus}`` with the slices of their NPUs), ``vnpus`` (those of
    :func:`_vnpu.vnpus.vnpus`, with ``settings`` of the limiter), ``enabled`` and ``started`` (names of units that must start at boot, and
    run now; a limiter that its container's unit starts is neither) and ``expected`` (``{unit, cpus, mems}``, what the kernel must grant).
    CPUs and memory nodes are cpulists.
    Raises ``ValueError`` with the reasons why the plan must not be applied.
    """
    if reasons := refusals(topology, plan, named):
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
        variables = _variables(_devices(plan, named, entries), set_elsewhere(topology, unit), engine, named.bound_by)
        if method == SLICES:
            result["services"].append(_drop_in(unit, entries, _place(entries, home, named.bound_by), variables))
        elif pool_of(entries):
            result["services"].append(_drop_in(unit, entries, _affinity(topology, entries), variables))
    result["services"] += shared
    return result if method == SERVICES else result | _slices(plan, named.bound_by, together, result["vnpus"], alone)


def _without_effect(topology: Topology, plan: Plan, named: Named) -> str:
    """Return sentences on what the settings name for a host without effect, or is confined although it should not be; '' without any."""
    said = ""
    if found := _confined(topology, plan):
        said += f" Housekeeping confines these programs, which use accelerators, to CPUs {plan['housekeeping']}: {', '.join(found)}."
    names = [entry["unit"] for entry in named.services] + [entry["name"] for entry in (*named.workloads, *named.vnpus)]
    if names and not plan["npus"]:
        said += f" What is named for this host has no effect: {', '.join(names)}."
    return said


def _settings_of(vnpu: Mapping[str, Any], topology: Topology, method: str) -> dict[str, str]:
    """Return the lines that confine the limiter of a vNPU."""
    if method == SLICES:
        return {"Slice": vnpu["slice"]}
    return _affinity(topology, [vnpu]) if method == SERVICES else {}


def _slices(
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
    return {
        "parents": parents,
        "slices": slices,
        "housekeeping": housekeeping,
        "workloads": [
            {"name": workload["name"], "slice": workload["slice"], "npus": [entry["slice"] for entry in workload["processes"]]}
            for workload in together
        ],
        "enabled": [*names, *alone],
        "started": [*names, *(unit["name"] for unit in slices), *alone],
        "expected": [{"unit": unit["name"], "cpus": unit["cpus"], "mems": unit["mems"]} for unit in parents + slices + housekeeping],
    }


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


def _place(entries: Sequence[Mapping[str, Any]], home: str | None, bound_by: str) -> dict[str, str]:
    """The settings that put a service into its slice; with several NPUs and no workload slice, the union below the slice of all."""
    kind = kind_and_number(entries[0]["slice"])[0]
    if home is not None:
        return {"Slice": home}
    if bound_by == "workers":
        return {"Slice": f"{kind}.slice"}
    if len(entries) == 1:
        return {"Slice": entries[0]["slice"]}
    limits = {"AllowedCPUs": pool_of(entries), "AllowedMemoryNodes": _mems(entries)}
    return {"Slice": f"{kind}.slice"} | {key: value for key, value in limits.items() if value}


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
    return f"vNPU {vnpu['name']}: {vnpu['memory_mib']} MiB and {vnpu['core']} percent of {vnpu['of']}"


def _shared(vnpu: Mapping[str, Any]) -> dict[str, Any]:
    return _service(vnpu["unit"], _title(vnpu) + ".", vnpu["settings"], vnpu["limiter"])
