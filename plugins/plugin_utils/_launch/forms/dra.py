# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim on exactly the CPUs of the plan for the CPU driver of DRA, and the pod that has it.

kubernetes-sigs/dra-driver-cpu v0.2.0 (de98098), ``docs/user/opaque-cpuset-overrides.md`` and ``pkg/cpuallocator/external.go``: with
``groupBy: machine`` a claim gets the CPUs of the ``cpuset`` in the opaque configuration of its allocation: as many as its capacity, online,
not reserved, in no other claim. One configuration has one request. The scheduler copies the configurations of a claim into its allocation.
"Workload Configuration Requirements": the container asks for as many CPUs, and no other has the claim.

In individual mode a claim has a result for every CPU, 32 at most, and no cpuset (issue 290).
"""

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import pod
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = pod.ON_A_NODE
DRIVER = "dra.cpu"


def recipe(workload: Workload, options: Options) -> Recipe:
    name = pod.name_of(workload)
    wanted = pod.only_without_cpu_manager(workload, "the driver")
    reserved = pod.reserved(workload, options)
    requests = {request: pod.usable(workload, cpus, reserved) for request, cpus in _requests(workload).items()}
    made = pod.pod(workload, options, name, sum(map(len, requests.values())))
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": options.node}
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "cpus"}]
    made["spec"]["resourceClaims"] = [{"name": "cpus", "resourceClaimName": name}]
    kept = compress(reserved) or "(none)"
    notes = [
        f"dra-driver-cpu v0.2.0 must run on the node with {{cpuDeviceMode: grouped, groupBy: machine, reservedCPUs: '{kept}'}}; "
        "later releases also need allocator: external.",
        *([] if options.plan else ["reservedCPUs must have the CPUs for interrupts of all other NPUs, too: give plan."]),
        *wanted,
        "Kubernetes 1.34 or newer with feature gate DRAConsumableCapacity. Memory nodes are not bound: the driver gives CPUs only.",
    ]
    if options.devices:
        notes.append(pod.devices_elsewhere(pod.resource(workload, options)))
        notes.append(f"The CPUs are those of {workload.title}; which NPU the pod gets, the device plugin decides.")
    return Recipe(pod.documents(_claim(name, requests), made), notes)


def _requests(workload: Workload) -> dict[str, str]:
    """Return a name and a cpulist for every NPU with CPUs of its own; one for all where they share them."""
    pools = [set(expand(card.pool)) for card in workload.cards]
    own = len(pools) > 1 and sum(map(len, pools)) == len(set().union(*pools)) == len(expand(workload.cpus))
    if not own:
        return {"cpus": workload.cpus}
    return {f"{workload.kind}-{card.number if card.id is None else card.id}": card.pool for card in workload.cards}


def _claim(name: str, requests: dict[str, set[int]]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request,
                        "exactly": {"deviceClassName": DRIVER, "capacity": {"requests": {f"{DRIVER}/cpu": str(len(cpus))}}},
                    }
                    for request, cpus in requests.items()
                ],
                "config": [
                    {
                        "requests": [request],
                        "opaque": {"driver": DRIVER, "parameters": {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": compress(cpus)}}},
                    }
                    for request, cpus in requests.items()
                ],
            }
        },
    }
