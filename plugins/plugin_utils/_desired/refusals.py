# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a plan must not be applied to a host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import of_gpu, unclaimed
from ansible_collections.npu.affinity.plugins.module_utils._smi.driver import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.places import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import NVIDIA_GPUS
from ansible_collections.npu.affinity.plugins.module_utils._kernel.surroundings import CHROOT, CONTAINER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.sentences import processes_of, title_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import FOR_GOOD, SLICES, way
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title, unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

_NEEDED_BY = {
    "python3": "the units npu-affinity-*.service run",
    "systemctl": "the udev rule 90-npu-affinity.rules runs when a driver loads, and a bind itself needs",
}
_PACKAGES = {"python3": "Python 3.7 or newer, usually package python3", "systemctl": "usually package systemd"}
_SERVICE = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.service")


def plan_refusals(topology: Topology, plan: Plan, named: Named) -> list[Sentence]:
    """Return one sentence for everything that makes applying this plan unsafe or impossible; none when it may be applied."""
    services, workloads, vnpus, bound_by = named.services, named.workloads, named.vnpus, named.bound_by
    sentences = [Sentence("NPU_RULE_FAILS", violation) for violation in plan.get("violations") or ()]
    sentences += _gpu_memory(topology, plan)
    kind = "GPU" if list(topology.get("silent") or ()) == ["gpu"] else "NPU"
    if not plan["npus"] and topology.get("problems"):
        sentences.append(Sentence("NPU_SMI_UNAVAILABLE", f"No {kind} of this host can be planned: " + " ".join(topology["problems"])))
        sentences += [Sentence("NPU_SMI_UNAVAILABLE", FOR_GOOD)] if topology.get("applied") and not topology.get("silent") else []
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
            sentences.append(Sentence("NPU_SETTING_INVALID", f"npu_affinity_services: {unit} names no NPU or GPU."))
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


def _gpu_memory(topology: Topology, plan: Plan) -> Iterator[Sentence]:
    """Yield a sentence where slices would leave out memory nodes of their GPUs: CUDA cannot start there (IBM/powerai PR 125)."""
    gpus = [entry for entry in plan["npus"] if entry.get("kind") == "gpu" and memory_nodes(entry)]
    owners = of_gpu(topology)
    for entry in gpus:
        allowed = set(expand(memory_nodes(entry)))
        if missing := {node for node in owners if owners[node] == entry["pci"]} - allowed:
            yield Sentence(
                "NPU_GPU_MEMORY_OUTSIDE",
                f"{entry['slice']} would leave out memory node {compress(missing)}, which is the memory of {title(entry)} and not online, "
                "and CUDA cannot start without it. Start nvidia-persistenced, which brings it online, or use npu_affinity_memory: none.",
            )
        elif missing := set(unclaimed(topology)) - allowed:
            yield Sentence(
                "NPU_GPU_MEMORY_OUTSIDE",
                f"{entry['slice']} would have memory nodes {memory_nodes(entry)} only. One of nodes {compress(missing)} may be the memory "
                f"of {title(entry)}, without which CUDA cannot start, and {NVIDIA_GPUS}/{entry['pci']}/numa_status does not tell which. "
                "Load the driver and bind again, or use npu_affinity_memory: wide or none.",
            )


def confined(topology: Topology, plan: Plan) -> list[str]:
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
    found = confined(topology, plan)
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


def follow_refusals(topology: Topology, plan: Plan) -> list[Sentence]:
    """Return a sentence where housekeeping cannot follow the workloads. Where it is only a number of cores, that is a remark."""
    if not (plan["npus"] and plan.get("follow")) or way(topology, plan)[0] == SLICES:
        return []
    why = way(topology, plan)[1].partition(". ")[0]
    return [
        Sentence(
            "NPU_CANNOT_FOLLOW",
            f"npu_affinity_housekeeping=follow does not work on this host. {why}. Set a number of cores, a cpulist or '' for it.",
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


def place_refusals(topology: Topology) -> list[Sentence]:
    """Return a sentence on a container or a chroot: what is bound there does not reach the machine, or is lost with it."""
    inside = (topology.get("machine") or {}).get("inside") or {}
    if inside.get("kind") not in (CONTAINER, CHROOT):
        return []
    return [
        Sentence(
            "NPU_IN_CONTAINER",
            f"This is a {inside['kind']}: {inside['why']}. What a bind writes here does not last, and its CPUs may not be those of the "
            "machine. Run it on the host that runs the container, or has the chroot.",
        )
    ]


def silence_refusals(topology: Topology, replan: bool) -> list[Sentence]:
    """Return a sentence for each tool that did not tell what the plan in force is made of: a plan without it could move work."""
    applied = topology.get("applied") or {}
    kinds = {entry.get("kind") or "npu" for entry in applied.get("npus") or ()}
    return [
        Sentence(
            "NPU_SMI_UNAVAILABLE",
            f"{why} Without the answer of {'nvidia-smi' if kind == 'gpu' else 'npu-smi'}, {kind.upper()}s can get other CPUs than the plan "
            "in force gives them. Bind again when it answers, set a longer npu_affinity_timeout, or plan without the answer "
            "(npu_affinity_replan: true).",
        )
        for kind, why in (topology.get("silent") or {}).items()
        if kind in kinds and not replan
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
