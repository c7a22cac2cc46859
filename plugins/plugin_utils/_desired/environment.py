# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of npu_affinity_environment in the drop-ins of services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.fitting import SETTING, Variables, fitting, kept, values_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import NONE, way
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import is_lost, kind_and_number

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
    from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named


def added(topology: Topology, plan: Plan, named: Named, bound: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the services of :func:`binding.binding` with the variables and, in ``comments``, their reasons.

    A variable that another file of the unit sets is left to that file.
    """
    wanted = {unit: _not_set(topology, unit, found) for unit, found in _of_units(topology, plan, named)}
    return [_with(service, wanted.get(service["name"]) or {}) for service in bound["services"]]


def _with(service: Mapping[str, Any], found: Variables) -> Mapping[str, Any]:
    new = {name: of for name, of in found.items() if name not in service["environment"]}
    if not new:
        return service
    comments = {name: reason for name, (_value, reason) in new.items()}
    return {**service, "environment": {**service["environment"], **values_of(new)}, "comments": comments}


def remarks(topology: Topology, plan: Plan, named: Named, adopts: bool, slices: bool) -> Iterator[Sentence]:
    """Yield which variables are left as a unit has them, and what has no effect on this host. ``adopts`` and ``slices``: whether these
    features are on."""
    if not any(on for name, on in named.environment.items() if name != "visible_devices"):
        return
    units = list(_of_units(topology, plan, named)) if slices else []
    if not (units or adopts):
        why = "it sets variables in drop-ins of services. Name these in npu_affinity_services or npu_affinity_workloads"
        if not slices:
            why = "npu_affinity_slices_enabled is false, and services get no drop-ins. Enable slices"
        elif plan["npus"] and way(topology, plan)[0] == NONE:
            why = "the kubelet's CPU manager is static, and services get no drop-ins. Run this work in pods"
        yield Sentence("NPU_NO_EFFECT", f"{no_effect(SETTING, 'this host')}: {why}, or set npu_affinity_adopt.")
    elif named.environment.get("allocator") and topology.get("allocator", "") is None:
        yield Sentence(
            "NPU_ALLOCATOR_MISSING",
            f"{SETTING}: the host has neither jemalloc nor tcmalloc, so LD_PRELOAD is not set. Install one (usually package libjemalloc2 "
            "or jemalloc), and bind again.",
        )
    for unit, found in units:
        elsewhere = {name: (of["value"], of["file"]) for name, of in binding.set_elsewhere(topology, unit).items()}
        for sentence in kept(unit, found, elsewhere):
            yield Sentence("NPU_VARIABLE_KEPT", sentence)


def _not_set(topology: Topology, unit: str, found: Variables) -> Variables:
    elsewhere = binding.set_elsewhere(topology, unit)
    return {name: of for name, of in found.items() if name not in elsewhere}


def _of_units(topology: Topology, plan: Plan, named: Named) -> Iterator[tuple[str, Variables]]:
    """Yield the units that get drop-ins, with the variables that they should have."""
    if not plan["npus"] or way(topology, plan)[0] == NONE:
        return
    for unit, entries, _engine in binding.units_of(plan, named):
        kinds = [kind_and_number(entry["slice"])[0] for entry in entries if not is_lost(plan, entry)]
        if cpus := binding.pool_of(entries):
            yield unit, fitting(named.environment, cpus, kinds, topology.get("allocator"))
