# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a plan must not be applied to a host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import of_gpu, unclaimed
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.feature import HOUSEKEEPING_UNITS
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import NVIDIA_GPUS
from ansible_collections.npu.affinity.plugins.module_utils._kernel.surroundings import CHROOT, CONTAINER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.groups import processes_of, title_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import FOR_GOOD, SLICES, Work, method_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title, unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import workers
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus

_NEEDED_BY = {
    "python3": "the units npu-affinity-*.service run",
    "systemctl": "the udev rule 90-npu-affinity.rules runs when a driver loads, and a bind itself needs",
}
_PACKAGES = {"python3": "Python 3.7 or newer, usually package python3", "systemctl": "usually package systemd"}
_SERVICE = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.service")
_FOLDER = re.compile(r"(/(?!\.\.?(/|\Z))[A-Za-z0-9._+-]+)+")
"""Such a path needs no quotes in a unit file, a script, and the arguments of irqbalance."""
_LOST = ("/dev/", "/proc/", "/run/", "/sys/", "/tmp/", "/var/run/")


def plan_refusals(topology: Topology, plan: Plan, work: Work) -> list[Sentence]:
    """Return one sentence for everything that makes applying this plan unsafe or impossible; none when it may be applied."""
    services, workloads, bound_by = work.services, work.workloads, work.bound_by
    sentences = [Sentence("NPU_RULE_FAILS", violation) for violation in plan.get("violations") or ()]
    sentences += _gpu_memory(topology, plan)
    if not plan["npus"]:
        return sentences + _unlisted(topology)
    if differs := workers.refusal(topology, plan, bound_by):
        sentences.append(differs)
    for service in services:
        if not service["npus"]:
            sentences.append(Sentence("NPU_SETTING_INVALID", f"npu_affinity_services: {service['unit']} names no NPU or GPU."))
        if unknown := unknown_npus("npu_affinity_services", service["unit"], service["npus"], plan):
            sentences.append(unknown)
    sentences += _workloads.refusals(plan, workloads, services)
    whole = {service["unit"]: service["npus"] for service in services} | {entry["name"]: entry["npus"] for entry in workloads}
    return sentences + _vnpus.refusals(topology, plan, work.vnpus, bound_by, whole, work.device_share) + _units(work)


@remark("NPU_SMI_UNAVAILABLE")
def _unlisted(topology: Topology) -> Iterator[str]:
    if topology.get("problems"):
        kind = "GPU" if list(topology.get("silent") or ()) == ["gpu"] else "NPU"
        yield f"No {kind} of this host can be planned: " + " ".join(topology["problems"])
        if topology.get("applied") and not topology.get("silent"):
            yield FOR_GOOD


@remark("NPU_SETTING_INVALID")
def _units(work: Work) -> Iterator[str]:
    units = [service["unit"] for service in work.services]
    units += [unit for workload in work.workloads for unit in workload.get("units") or ()]
    units += [str(vnpu["unit"]) for vnpu in work.vnpus if vnpu.get("unit")]
    for unit in sorted(set(units)):
        if not _SERVICE.fullmatch(unit):
            yield f"'{unit}' is not the name of a systemd service, such as vllm@0.service."
        if units.count(unit) > 1:
            yield f"{unit} is named more than once in npu_affinity_services, _workloads and _vnpus; name it once."


@remark("NPU_GPU_MEMORY_OUTSIDE")
def _gpu_memory(topology: Topology, plan: Plan) -> Iterator[str]:
    """Yield a sentence where slices would leave out memory nodes of their GPUs: CUDA cannot start there (IBM/powerai PR 125)."""
    owners = of_gpu(topology)
    for entry in plan["npus"]:
        if entry.get("kind") != "gpu" or not memory_nodes(entry):
            continue
        allowed = set(expand(memory_nodes(entry)))
        if missing := {node for node in owners if owners[node] == entry["pci"]} - allowed:
            yield (
                f"{entry['slice']} would leave out memory node {compress(missing)}, which is the memory of {title(entry)} and not online, "
                "and CUDA cannot start without it. Start nvidia-persistenced, which brings it online, or use npu_affinity_memory: none."
            )
        elif missing := set(unclaimed(topology)) - allowed:
            yield (
                f"{entry['slice']} would have memory nodes {memory_nodes(entry)} only. One of nodes {compress(missing)} may be the memory "
                f"of {title(entry)}, without which CUDA cannot start, and {NVIDIA_GPUS}/{entry['pci']}/numa_status does not show which. "
                "Load the driver and bind again, or use npu_affinity_memory: wide or none."
            )


def confined(topology: Topology, plan: Plan) -> list[str]:
    """Return what has accelerators open in the units that housekeeping confines, one text for every unit."""
    if not plan["npus"] or not plan["housekeeping"] or method_of(topology, plan)[0] != SLICES:
        return []
    return [
        f"{title_of(user)} in {top} ({processes_of(user)}; {', '.join(f'/dev/{name}' for name in user['devices']) or 'listed by npu-smi'})"
        for user in topology.get("users") or ()
        if user["processes"] and (top := user["group"].split("/")[1]) in HOUSEKEEPING_UNITS
    ]


@remark("NPU_HOUSEKEEPING_CONFINES")
def holder_refusals(topology: Topology, plan: Plan) -> Iterator[str]:
    """Yield a sentence when new housekeeping would confine what uses accelerators."""
    in_force = (topology.get("applied") or {}).get("housekeeping") or ""
    if in_force != plan["housekeeping"] and (holders := confined(topology, plan)):
        yield (
            f"npu_affinity_housekeeping would confine these programs, which use accelerators, to CPUs {plan['housekeeping']}: "
            f"{', '.join(holders)}. "
            "Start them in the slices of their NPUs first (a service: bind without housekeeping, with npu_affinity_services, restart it; "
            f"a container: docker run --cgroup-parent={plan['npus'][0]['slice']}), or confine them with "
            "npu_affinity_housekeeping_confine_holders: true."
        )


@remark("NPU_CANNOT_FOLLOW")
def follow_refusals(topology: Topology, plan: Plan) -> Iterator[str]:
    """Yield a sentence where housekeeping cannot follow the workloads. Where it is only a number of cores, that is a remark."""
    if plan["npus"] and plan.get("follow") and method_of(topology, plan)[0] != SLICES:
        why = method_of(topology, plan)[1].partition(". ")[0]
        yield f"npu_affinity_housekeeping=follow does not work on this host. {why}. Set a number of cores, a cpulist or '' for it."


@remark("NPU_PROGRAM_MISSING")
def program_refusals(topology: Topology) -> Iterator[str]:
    for name, path in sorted((topology.get("programs") or {}).items()):
        if path is None:
            yield f"This host has no program {name}, which {_NEEDED_BY[name]}: install it ({_PACKAGES[name]}), and bind again."


@remark("NPU_IN_CONTAINER")
def place_refusals(topology: Topology) -> Iterator[str]:
    """Yield a sentence on a container or a chroot: what is bound there does not reach the machine, or is lost with it."""
    inside = (topology.get("machine") or {}).get("inside") or {}
    if inside.get("kind") in (CONTAINER, CHROOT):
        yield (
            f"This is a {inside['kind']}: {inside['why']}. What a bind writes here does not last, and its CPUs may not be those of the "
            "machine. Run it on the host that runs the container, or has the chroot."
        )


@remark("NPU_SMI_UNAVAILABLE")
def silence_refusals(topology: Topology, replan: bool) -> Iterator[str]:
    """Yield a sentence for each tool that did not tell what the plan in force is made of: a plan without it could move work."""
    kinds = {entry.get("kind") or "npu" for entry in (topology.get("applied") or {}).get("npus") or ()}
    for kind, why in (topology.get("silent") or {}).items():
        if kind in kinds and not replan:
            yield (
                f"{why} Without the answer of {'nvidia-smi' if kind == 'gpu' else 'npu-smi'}, {kind.upper()}s can get other CPUs than the "
                "plan in force gives them. Bind again when it answers, set a longer npu_affinity_timeout, or plan without the answer "
                "(npu_affinity_replan: true)."
            )


@remark("NPU_DRIVER_TOO_OLD")
def driver_refusals(topology: Topology) -> Iterator[str]:
    """Yield a sentence when the NPUs of a host have an older driver than device share may be switched on with."""
    version = (topology.get("driver") or {}).get("version")
    if any(npu.get("kind", "npu") == "npu" for npu in topology["npus"]) and (not version or is_older(version, OLDEST_DRIVER)):
        which = f"the Ascend driver is {version}" if version else "the version of the Ascend driver is not known"
        yield f"npu_affinity_device_share_enabled: {which}, and {OLDEST_DRIVER} or newer is required; update the driver first."


@remark("NPU_SETTING_INVALID")
def host_code_refusals(folder: str) -> Iterator[str]:
    why = ""
    if not _FOLDER.fullmatch(folder):
        why = "it must be an absolute path of letters, digits and ._+-, without '..' and without a slash at its end"
    elif f"{folder}/".startswith(_LOST):
        why = "what is there is lost at the next boot"
    if why:
        yield f"npu_affinity_library cannot be '{folder}': {why}. Name a folder such as /var/lib/npu-affinity."
