# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim on the NPUs of the workload, one on exactly the CPUs of the plan, and the pod that has both.

CPUs: kubernetes-sigs/dra-driver-cpu v0.2.0 (7f95568), ``docs/user/opaque-cpuset-overrides.md``. With ``groupBy: machine`` a claim gets the
CPUs of the ``cpuset`` in the opaque configuration of its allocation: as many as its capacity, online, not reserved, in no other claim. One
configuration has one request. The scheduler copies the configurations of a claim into its allocation. "Workload Configuration
Requirements": the container asks for as many CPUs, and no other has the claim. In individual mode a claim has a result for every CPU, 32
at most, and no cpuset (issue 290).

NPUs: Ascend/mind-cluster (22bb3d98), ``component/ascend-dynamic-resource-allocation``. Driver and class are ``npu.huawei.com``; attribute
``physicId`` is the N of ``/dev/davinciN``. It fails on a claim with results of other drivers (``state.go``, ``prepareDevices``), so that
there are two. All NPUs of a claim come together. On A2 and A3 it publishes nothing: a name such as ``Ascend910-0`` is no DNS label.

One claim (``one_claim``): from Kubernetes 1.37 on, ``derivedAttributes`` (KEP-6080, alpha) give each NPU the NUMA node of the topology, and
``matchAttribute`` a share of the CPUs of this node, not the pool. dra-driver-cpu publishes the attribute after v0.2.0, by ``groupBy:
numanode``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import device_number
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import pod
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = pod.ON_A_NODE | {"one_claim"}
DRIVER = "dra.cpu"
NPU_DRIVER = "npu.huawei.com"
NUMA_NODE = "resource.kubernetes.io/numaNode"
SERVED = {"a5"}
"""The families for which Ascend's driver publishes devices."""


def recipe(workload: Workload, options: Options) -> Recipe:
    name = pod.name_of(workload)
    wanted = pod.only_without_cpu_manager(workload, "the driver")
    reserved = pod.reserved(workload, options)
    requests = {request: pod.usable(workload, cpus, reserved) for request, cpus in _requests(workload).items()}
    size = sum(map(len, requests.values()))
    npus = _npus(workload, options)
    if options.one_claim and not (npus and workload.topology):
        raise ValueError(f"one_claim: {workload.title} has no NPU whose device file is known; give topology, or leave out one_claim")
    if options.one_claim:
        claims = {"devices": _claim(name, [npus, _cpus("cpus", size)])}
        npus["exactly"]["derivedAttributes"] = [_numa_nodes(workload)]
        claims["devices"]["spec"]["devices"]["constraints"] = [{"requests": [npus["name"], "cpus"], "matchAttribute": NUMA_NODE}]
    else:
        claims = {"cpus": _claim(name, [_cpus(request, len(cpus)) for request, cpus in requests.items()])}
        claims["cpus"]["spec"]["devices"]["config"] = [_exactly(request, cpus) for request, cpus in requests.items()]
        claims |= {"npus": _claim(f"{name}-npus", [npus])} if npus else {}
    made = pod.pod(workload, dataclasses.replace(options, devices=options.devices and not npus), name, size)
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": options.node}
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": claim} for claim in claims]
    made["spec"]["resourceClaims"] = [{"name": claim, "resourceClaimName": of["metadata"]["name"]} for claim, of in claims.items()]
    notes = [*_needs(options, compress(reserved) or "(none)"), *wanted, *_of_devices(workload, options, npus)]
    return Recipe(pod.documents(*claims.values(), made), notes)


def _needs(options: Options, reserved: str) -> Iterator[str]:
    if options.one_claim:
        yield (
            "Kubernetes 1.37 or newer with feature gates DRAConsumableCapacity and DRADerivedAttributes (alpha), a dra-driver-cpu after "
            f"v0.2.0 with --group-by=numanode --reserved-cpus={reserved}, and an Ascend driver that skips results of other drivers."
        )
        yield "The container gets a share of the NUMA node of its NPUs, not the CPUs of the plan."
        return
    yield f"dra-driver-cpu v0.2.0 must run on the node with --cpu-device-mode=grouped --group-by=machine --reserved-cpus={reserved}."
    if not options.plan:
        yield "--reserved-cpus must have the CPUs for interrupts of all other NPUs, too: give plan."
    yield "Kubernetes 1.34 or newer with feature gate DRAConsumableCapacity. Memory nodes are not bound: the driver gives CPUs only."


def _of_devices(workload: Workload, options: Options, npus: dict[str, Any]) -> Iterator[str]:
    if not options.devices:
        return
    if not npus:
        yield pod.devices_elsewhere(pod.resource(workload, options))
        yield f"The CPUs are those of {workload.title}; which NPU the pod gets, the device plugin decides."
        return
    yield (
        "Ascend's DRA driver must run on the node in place of the device plugin, with a runtime that has CDI 0.8 (containerd 2.0, "
        "CRI-O 1.32)."
    )
    if others := sorted({card.family or "an unknown family" for card in workload.cards} - SERVED):
        yield (
            f"As of August 2026, that driver publishes the NPUs of Ascend 950 alone, and this workload has {' and '.join(others)}: for the "
            "device plugin, pass resource."
        )


def _npus(workload: Workload, options: Options) -> dict[str, Any]:
    """Return the request for the NPUs; none where the device plugin gives them: asked for by ``resource``, or a device is not known."""
    numbers = sorted(card.known for card in workload.cards if card.known is not None)
    if not options.devices or options.resource or workload.kind != "npu" or not numbers or len(numbers) < len(workload.cards):
        return {}
    selector = f'device.attributes["{NPU_DRIVER}"].physicId in {numbers}'
    exactly = {"deviceClassName": NPU_DRIVER, "count": len(numbers), "selectors": [{"cel": {"expression": selector}}]}
    return {"name": "npus", "exactly": exactly}


def _numa_nodes(workload: Workload) -> dict[str, Any]:
    """Return the attribute that derives the NUMA node of every NPU of the host from its ``physicId``."""
    nodes = {device_number(npu): npu["numa"] for npu in workload.topology["npus"] if npu["kind"] == "npu"}
    known = {number: node for number, node in nodes.items() if number is not None and node is not None}
    if len(known) < len(nodes):
        raise ValueError("one_claim: the device file or the NUMA node of an NPU of this host is not known; leave out one_claim")
    by_number = [known.get(number, -1) for number in range(max(known) + 1)]
    return {"name": NUMA_NODE, "expression": f'{by_number}[device.attributes["{NPU_DRIVER}"].physicId]'}


def _requests(workload: Workload) -> dict[str, str]:
    """Return a name and a cpulist for every NPU with CPUs of its own; one for all where they share them."""
    pools = [set(expand(card.pool)) for card in workload.cards]
    own = len(pools) > 1 and sum(map(len, pools)) == len(set().union(*pools)) == len(expand(workload.cpus))
    if not own:
        return {"cpus": workload.cpus}
    return {f"{workload.kind}-{card.number if card.id is None else card.id}": card.pool for card in workload.cards}


def _claim(name: str, requests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [*requests]}},
    }


def _cpus(request: str, count: int) -> dict[str, Any]:
    return {"name": request, "exactly": {"deviceClassName": DRIVER, "capacity": {"requests": {f"{DRIVER}/cpu": str(count)}}}}


def _exactly(request: str, cpus: Iterable[int]) -> dict[str, Any]:
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": compress(cpus)}}
    return {"requests": [request], "opaque": {"driver": DRIVER, "parameters": parameters}}
