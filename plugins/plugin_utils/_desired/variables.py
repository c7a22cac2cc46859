# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of services: those that confine a process to its devices, without which one on the CPUs of NPU 2 computes on NPU 0, those
that switch the binding of its engine off, and those of npu_affinity_environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import Engine
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import union
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.fitting import SETTING, Variables, fitting, overridden, values_of
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import DEVICES, VISIBLE, agrees, visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import NONE, Work, method_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import Entry, is_lost, kind_and_number, title

SetElsewhere = Mapping[str, Mapping[str, Any]]
"""What other files of a service than our drop-in set: ``{name: {value, file, wins}}``."""
_CUDA = DEVICES["gpu"][0]
NOBODY = -1
"""An id that no device has: a program whose NPUs are all lost then finds none, in place of someone else's."""


def variables(topology: Topology, plan: Plan, work: Work, unit: str, entries: Sequence[Entry], engine: Engine | None) -> dict[str, Any]:
    """Return the variables of a service: those that name its ``devices``, the ``switches`` of its engine's binding, and what its drop-in
    sets (``environment``), with the reasons of some in ``comments``.

    A kind of device is left to another file that names others, and a variable of npu_affinity_environment to each that sets it.
    """
    elsewhere, wanted = set_elsewhere(topology, unit), devices(topology, plan, work, entries)
    switches = dict(engine.environment) if engine else {}
    environment: dict[str, str] = {}
    for of_kind in wanted:
        others = {name: of["value"] for name, of in elsewhere.items() if name in of_kind and not of["wins"]}
        if not any(name in VISIBLE or value != of_kind[name] for name, value in others.items()):
            environment |= of_kind
    environment |= switches
    more = {name: of for name, of in _fitting(topology, plan, work, entries).items() if name not in elsewhere and name not in environment}
    return {
        "environment": environment | values_of(more),
        "devices": {name: value for of_kind in wanted for name, value in of_kind.items()},
        "switches": switches,
        **({"comments": {name: reason for name, (_value, reason) in more.items()}} if more else {}),
    }


def set_elsewhere(topology: Topology, unit: str) -> SetElsewhere:
    return (topology.get("unit_environment") or {}).get(unit) or {}


def devices(topology: Topology, plan: Plan, work: Work, entries: Sequence[Entry]) -> list[Mapping[str, str]]:
    """Return the variables for a process with these entries of a plan: for its NPUs, and for its GPUs, whose MIG devices have UUIDs."""
    if not _names_devices(work):
        return []
    by_kind: list[Mapping[str, str]] = []
    mig = _mig(topology)
    for kind in DEVICES:
        same = [entry for entry in entries if kind_and_number(entry["slice"])[0] == kind]
        there = sorted((entry for entry in same if not is_lost(plan, entry)), key=lambda entry: int(entry["id"]))
        ids = [part for entry in there for part in mig.get((kind, entry["pci"]), [entry["id"]])]
        by_kind += [visible_devices(kind, ids or [NOBODY])] if same else []
    return by_kind


def _names_devices(work: Work) -> bool:
    return work.environment.get("visible_devices") is not False


def _fitting(topology: Topology, plan: Plan, work: Work, entries: Sequence[Entry]) -> Variables:
    kinds = [kind_and_number(entry["slice"])[0] for entry in entries if not is_lost(plan, entry)]
    cpus = union(entry["pool"] for entry in entries)
    return fitting(work.environment, cpus, kinds, topology.get("allocator")) if cpus else {}


def _mig(topology: Topology) -> dict[tuple[str, str | None], list[str]]:
    return {(npu["kind"], npu["pci"]): npu["mig"] for npu in topology["npus"] if "mig" in npu}


@remark("NPU_SETTING_INVALID")
def mig_refusals(topology: Topology, plan: Plan, work: Work) -> Iterator[str]:
    """Yield a sentence for each service of which nothing tells its MIG device: CUDA gives a process one."""
    mig = _mig(topology)
    for unit, entries, _engine in work.units(plan) if _names_devices(work) and method_of(topology, plan)[0] != NONE else ():
        of = {title(entry): mig[key] for entry in entries if (key := (kind_and_number(entry["slice"])[0], entry.get("pci"))) in mig}
        parts = [part for names in of.values() for part in names]
        cuda = set_elsewhere(topology, unit).get(_CUDA)
        if not of or len(parts) == 1 or parts and cuda and agrees(_CUDA, cuda["value"], ",".join(parts)):
            continue
        has = f"{len(parts)} MIG devices" if parts else "no MIG device"
        advice = "Create one (nvidia-smi mig), or switch MIG mode off (nvidia-smi -mig 0)."
        if parts:
            advice = f"Set {_CUDA} of the service to one of {', '.join(parts)}."
        are = f"{' and '.join(of)} {'are' if len(of) > 1 else 'is'}"
        yield f"{unit}: {are} in MIG mode with {has}, and a process of CUDA takes exactly one. {advice}"


@remark("NPU_VARIABLE_KEPT")
def differing(topology: Topology, plan: Plan, work: Work, unit: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a sentence for every variable that a file of a service sets, and to devices that are not its own."""
    owner = " and ".join(map(title, entries))
    for of_kind in devices(topology, plan, work, entries):
        for name, of in set_elsewhere(topology, unit).items():
            if name in of_kind and not agrees(name, of["value"], of_kind[name]):
                yield (
                    f"{unit} has the CPUs of {owner}, and {of['file']} sets {name}={of['value']} instead of {of_kind[name]}. It is left "
                    "so: take it out there, or name the devices that it uses."
                )


def remarks(topology: Topology, plan: Plan, work: Work, adopts: bool, slices: bool) -> Iterator[Sentence]:
    """Yield which variables of npu_affinity_environment are left as a unit has them, and what has no effect on this host. ``adopts`` and
    ``slices``: whether these features are on."""
    if not any(on for name, on in work.environment.items() if name != "visible_devices"):
        return
    units: list[tuple[str, Variables]] = []
    no_drop_ins = not plan["npus"] or method_of(topology, plan)[0] == NONE
    if slices and not no_drop_ins:
        bound = [(unit, entries) for unit, entries, _engine in work.units(plan) if any(entry["pool"] for entry in entries)]
        units = [(unit, _fitting(topology, plan, work, entries)) for unit, entries in bound]
    if not (units or adopts):
        why = "it sets variables in drop-ins of services. Name these in npu_affinity_services or npu_affinity_workloads"
        if not slices:
            why = "npu_affinity_slices_enabled is false, and services get no drop-ins. Enable slices"
        elif plan["npus"] and no_drop_ins:
            why = "the kubelet's CPU manager is static, and services get no drop-ins. Run this work in pods"
        yield Sentence("NPU_NO_EFFECT", f"{no_effect(SETTING, 'this host')}: {why}, or set npu_affinity_adopt.")
    elif work.environment.get("allocator") and topology.get("allocator", "") is None:
        yield Sentence(
            "NPU_ALLOCATOR_MISSING",
            f"{SETTING}: the host has neither jemalloc nor tcmalloc, so LD_PRELOAD is not set. Install one (usually package libjemalloc2 "
            "or jemalloc), and bind again.",
        )
    for unit, fitted in units:
        elsewhere = {name: (of["value"], of["file"]) for name, of in set_elsewhere(topology, unit).items()}
        yield from (Sentence("NPU_VARIABLE_KEPT", sentence) for sentence in overridden(unit, fitted, elsewhere))
