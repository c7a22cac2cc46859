# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind of a plan would move, and what its user should look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES, OPENMP_BINDER, Binder, Engine
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.places import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import visible_devices as _visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import devices, set_elsewhere, units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import NONE, SLICES, way
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import is_lost, members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import forecast, pods
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import moves
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

_SWITCH = "npu_affinity_slices_enabled is false"
_BINDERS: dict[str, tuple[str, Binder]] = {
    binder.variable: (name, binder)
    for name, engine in reversed(ENGINES.items())
    for binder in engine.binders
    if binder.variable in binder.off and binder is not OPENMP_BINDER
}
"""The variables that switch the binding of an engine on and off; of several engines the first."""
OFF = f"Workloads get no slices, because {_SWITCH}."


def remarks(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return what a bind of this plan would move, what the kubelet holds and does, and the :func:`warnings`; nothing without an NPU."""
    if not plan["npus"]:
        return []
    moved = moves(topology.get("applied"), plan, named.users())
    return moved + pods.remarks(topology, plan) + forecast.remarks(topology, plan) + warnings(topology, plan, named)


def warnings(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return one sentence for everything that the user should look at in what the settings name. They refuse nothing."""
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
        wanted, found = devices(topology, plan, named, entries), set_elsewhere(topology, unit)
        sentences += _visible_devices.differing(unit, entries, wanted, found)
        sentences += _overridden(unit, engine, found) if engine else _binding_itself(unit, found)
    return sentences + _vnpus.inconsistencies(topology, plan, named.vnpus, named.device_share)


@remark("NPU_CARD_IN_GUEST")
def guests(topology: Topology) -> Iterator[str]:
    """Yield which accelerators get no pool because a driver holds them for a guest."""
    found: dict[tuple[str, str], list[str]] = {}
    for device in topology.get("guests") or ():
        found.setdefault(("GPU" if device["family"] == "gpu" else "NPU", device["driver"]), []).append(device["pci"])
    for (kind, driver), functions in found.items():
        plural, have = ("s", "have") if len(functions) > 1 else ("", "has")
        yield f"{kind}{plural} at {', '.join(functions)} {have} driver {driver}, which gives them to guests: no pool is planned for them."


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
        for name, (engine, binder) in _BINDERS.items()
        if (of := found.get(name)) and binder.is_on(of["value"])
    ]


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
