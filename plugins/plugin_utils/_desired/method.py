# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How workloads are bound on a host (decisions 1, 2 and 8 of the design), and what the settings name for its NPUs:

* cgroup v2 with the controller cpuset, and systemd >= 244: ``AllowedCPUs=`` and ``AllowedMemoryNodes=`` on slices
  (systemd.resource-control(5)).
* other hosts: systemd ignores these. The services that the user names get ``CPUAffinity=``, and with systemd >= 243
  ``NUMAPolicy=`` and ``NUMAMask=`` (systemd.exec(5)).
* static kubelet: the kubelet owns the CPUs. No slices; a sentence names the CPUs for ``reservedSystemCPUs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES, Engine
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import union
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, PlanEntry, Topology
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import CONTROLLERS, sets_cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import Entry, members
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole, Service, Workload
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

SLICES, SERVICES, NONE = "slices", "services", "none"
FOR_GOOD = "The last bind stays in force. If the accelerators were removed permanently, unbind the host (playbook npu.affinity.unbind)."


class Work(NamedTuple):
    """Services, workloads and vNPUs of a host. ``environment``: which variables drop-ins set besides. ``limiter``: whether vNPUs have one
    on the host. ``device_share``: whether the same bind switches device share on for the NPUs of vNPUs, None where that is not known."""

    services: Sequence[Service] = ()
    workloads: Sequence[Workload] = ()
    vnpus: Sequence[Entry] = ()
    bound_by: str = "host"
    environment: Mapping[str, bool] = {}
    limiter: bool = True
    device_share: bool | None = None

    @classmethod
    def of(cls, settings: OfRole, device_share: bool | None = None) -> Work:
        vnpus, limiter = _vnpus.with_names(settings["vnpus"]), bool(settings["vnpu_limiter"])
        return cls(settings["services"], settings["workloads"], vnpus, settings["bound_by"], settings["environment"], limiter, device_share)

    def users(self) -> list[tuple[str, Sequence[Any]]]:
        return [
            *((str(service["unit"]), service["npus"]) for service in self.services),
            *((f"workload {workload['name']}", workload["npus"]) for workload in self.workloads),
            *((f"vNPU {vnpu['name']}", [vnpu["npu"]]) for vnpu in self.vnpus),
        ]

    def units(self, plan: Plan) -> list[tuple[str, list[PlanEntry], Engine | None]]:
        """Return the units of services, then of workloads, each with the entries of its NPUs, and its engine if given."""
        units: list[tuple[str, Service | Workload]] = [(str(service["unit"]), service) for service in self.services]
        units += [(str(unit), workload) for workload in self.workloads for unit in workload.get("units") or ()]
        return [(unit, members(plan, user["npus"])[0], ENGINES.get(user.get("engine") or "")) for unit, user in units]


def method_of(topology: Topology, plan: Plan) -> tuple[str, str]:
    """Return how workloads are bound on this host (slices, services or none) and the sentence that says why."""
    machine = topology.get("machine") or {}
    if not plan["npus"]:
        bound = len(((topology.get("applied") or {}).get("npus")) or ())
        return NONE, (
            f"None of the {bound} accelerators that this host was bound for can be found. Nothing is changed. {FOR_GOOD}"
            if bound
            else "There is no accelerator on this host: nothing is bound, and nothing is written."
        )
    if (topology.get("kubelet") or {}).get("policy") == "static":
        reserved = union(entry["irq"] for entry in plan["npus"])
        housekeeping = f" and the housekeeping CPUs {plan['housekeeping']}" if plan["housekeeping"] else ""
        return NONE, (
            "The kubelet's CPU manager is static and owns the CPUs, so no slices are written. Let its reservedSystemCPUs cover the "
            f"IRQ CPUs {reserved or '(none)'}{housekeeping}."
        )
    if sets_cpus(machine):
        return SLICES, "Workloads are bound by systemd slices (cgroup v2)."
    lacks = f" without the controller cpuset ({CONTROLLERS} does not list it)" if machine.get("cpusets") is False else ""
    versions = [machine.get(name) or "of unknown version" for name in ("cgroup", "systemd")]
    return SERVICES, (
        f"This host has cgroup {versions[0]}{lacks}, systemd {versions[1]}, where systemd ignores AllowedCPUs= on slices (cgroup v2 with "
        "cpusets and systemd 244 are needed). The services named in npu_affinity_services get CPUAffinity= instead. Other workloads are "
        "bound only by npu_affinity_adopt=now or always, while they run. Interrupts are bound as elsewhere."
    )


def with_kubelet(topology: Topology, policy: str) -> Topology:
    """Return the topology of a host whose kubelet gets this policy of the CPU manager by the same bind; '' leaves it as it is."""
    kubelet = topology.get("kubelet")
    return {**topology, "kubelet": {**kubelet, "policy": policy}} if policy and kubelet else topology
