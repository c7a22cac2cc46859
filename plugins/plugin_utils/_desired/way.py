# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How workloads are bound on a host (decisions 1, 2 and 8 of the design):

* cgroup v2 with the controller cpuset, and systemd >= 244: ``AllowedCPUs=`` and ``AllowedMemoryNodes=`` on slices
  (systemd.resource-control(5)).
* other hosts: systemd ignores these. The services that the user names get ``CPUAffinity=``, and with systemd >= 243
  ``NUMAPolicy=`` and ``NUMAMask=`` (systemd.exec(5)).
* static kubelet: the kubelet owns the CPUs. No slices; a sentence names the CPUs for ``reservedSystemCPUs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import CONTROLLERS, sets_cpus
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import union

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

SLICES, SERVICES, NONE = "slices", "services", "none"
FOR_GOOD = "What was bound waits for them; when they are gone for good, unbind the host (playbook npu.affinity.unbind)."


def way(topology: Topology, plan: Plan) -> tuple[str, str]:
    """Return how workloads are bound on this host (slices, services or none) and the sentence that says why."""
    machine = topology.get("machine") or {}
    kubelet = topology.get("kubelet") or {}
    systemd = machine.get("systemd")
    if not plan["npus"]:
        bound = len(((topology.get("applied") or {}).get("npus")) or ())
        return NONE, (
            f"None of the {bound} accelerators that this host was bound for can be found. Nothing is changed. {FOR_GOOD}"
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


def with_kubelet(topology: Topology, policy: str) -> Topology:
    """Return the topology of a host whose kubelet gets this policy of the CPU manager by the same bind; '' leaves it as it is."""
    kubelet = topology.get("kubelet")
    return {**topology, "kubelet": {**kubelet, "policy": policy}} if policy and kubelet else topology
