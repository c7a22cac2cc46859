# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What container engines, the kubelet and vLLM-Ascend's own binding make of CPU sets: which work, which fail, which do less than asked.

Sources, rule by rule: moby (names of parent slices, CPUs of the daemon), opencontainers/runc ``ExpandSlice``, podman (cgroupfs),
kernel ``Documentation/admin-guide/cgroup-v2.rst`` (cpuset), kubernetes issues 85764 and 104147 (what runs next to a kubelet), and
vllm-project/vllm-ascend@182b75ea ``vllm_ascend/cpu_binding.py`` (CPUs that in-process binding needs).
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, NamedTuple

from .._base.cpulist import compress, expand

LEAST_CPUS = 5
"""CPUs that vLLM-Ascend needs for every NPU it lists: two for interrupts, one each for main, ACL and release."""
_SLICE = re.compile(r"^(-|[A-Za-z0-9:_.\\]+(-[A-Za-z0-9:_.\\]+)*)\.slice\Z")


class Verdict(NamedTuple):
    """``ok`` is True, False, or ``warn`` for what works but not as one would think; ``effective`` the cpulist that results, if known."""

    ok: bool | str
    message: str = ""
    effective: str | None = None


def parent_verdict(name: str, driver: str = "systemd") -> Verdict:
    """Judge the parent cgroup of a container. ``driver`` is the engine's cgroup driver, systemd or cgroupfs."""
    if driver != "systemd":
        if name.endswith(".slice") and "/" not in name:
            return Verdict(False, f"the cgroupfs driver takes a path, not the slice {name}; switch the engine to the systemd cgroup driver")
        return Verdict(True)
    if not name.endswith(".slice") or name == ".slice":
        return Verdict(False, 'cgroup-parent for systemd cgroup should be a valid slice named as "xxx.slice"')
    if not _SLICE.match(name):
        return Verdict(False, f"invalid slice name: {name}")
    return Verdict(True)


def set_verdict(container_cpus: str, slice_cpus: str | None = None, host_cpus: str | None = None, cgroup: int | str = 2) -> Verdict:
    """Judge a container's cpulist (empty: none of its own) against its slice's and against those that the engine sees.

    None means that a set is not known or not restricted. ``cgroup`` is the version: 2 or ``v2``, anything else is version 1.
    """
    wanted = set(expand(container_cpus, "container_cpus"))
    if host_cpus is not None and wanted - set(expand(host_cpus, "host_cpus")):
        return Verdict(False, f"Requested CPUs are not available - requested {container_cpus}, available: {host_cpus}")
    if slice_cpus is None:
        return Verdict(True, effective=compress(wanted) if wanted else host_cpus)
    granted = set(expand(slice_cpus, "slice_cpus"))
    if wanted <= granted:
        return Verdict(True, effective=compress(wanted or granted))
    outside = compress(wanted - granted)
    if cgroup not in (2, "v2"):
        return Verdict(
            False, f"failed to write cpuset.cpus: permission denied: CPUs {outside} are not in the slice's {slice_cpus} (cgroup version 1)"
        )
    if wanted & granted:
        return Verdict(True, f"CPUs {outside} are not in the slice and are left out", compress(wanted & granted))
    return Verdict(True, f"CPUs {outside} are not in the slice: the setting is ignored and all of the slice is used", compress(granted))


def kubelet_verdict(kubelet: Mapping[str, Any] | None, slice_cpus: str) -> Verdict:
    """Judge CPUs of a slice outside Kubernetes on a host with a kubelet.

    ``kubelet`` has ``policy`` and, where known, ``reservedSystemCPUs`` and ``exclusive`` (container -> cpulist).
    """
    if not kubelet:
        return Verdict(True)
    cpus = set(expand(slice_cpus, "slice_cpus"))
    if kubelet.get("policy") != "static":
        return Verdict("warn", f"The kubelet has no static CPU manager: pods float over all CPUs and run on {slice_cpus} as well.")
    for container, exclusive in (kubelet.get("exclusive") or {}).items():
        common = cpus & set(expand(exclusive, f"exclusive CPUs of {container}"))
        if common:
            return Verdict(False, f"the kubelet has given CPUs {compress(common)} to container {container} exclusively")
    reserved = kubelet.get("reservedSystemCPUs")
    if reserved is None:
        return Verdict("warn", f"The kubelet has a static CPU manager: let its reservedSystemCPUs cover {slice_cpus}.")
    outside = cpus - set(expand(reserved, "reservedSystemCPUs"))
    if outside:
        return Verdict(
            False,
            f"the kubelet has a static CPU manager and hands out CPUs {compress(outside)}; reservedSystemCPUs, now {reserved or '(none)'}, "
            "must cover them",
        )
    return Verdict(True)


def binding_verdict(binding: str, container_cpus: str, total_npus: int) -> Verdict:
    """Judge a set in which vLLM-Ascend binds itself. ``total_npus`` counts all NPUs that ``npu-smi`` lists there, not only those used."""
    if binding != "global_slice":
        return Verdict("warn", f"Whether {binding} finds enough CPUs in {container_cpus} depends on the affinity of all listed NPUs.")
    if total_npus < 1:
        raise ValueError(f"total_npus: in-process binding counts at least 1 NPU, got {total_npus}; give the number that npu-smi lists")
    count = len(expand(container_cpus, "container_cpus"))
    if count // total_npus < LEAST_CPUS:
        return Verdict(
            False,
            f"Insufficient CPUs for binding with CPU role reservations: total_allowed={count}, total_npus={total_npus}, "
            f"min_per_npu={count // total_npus} (<{LEAST_CPUS}). Need at least {LEAST_CPUS * total_npus} CPUs in cpuset. Turn "
            "enable_cpu_binding off, or give all containers the same host-wide set",
        )
    return Verdict(True)


class Statement(NamedTuple):
    """The settings of a container to be judged together; cpulists, None where a setting is absent."""

    cgroup_parent: str | None = None
    driver: str = "systemd"
    container_cpus: str | None = None
    slice_cpus: str | None = None
    host_cpus: str | None = None
    cgroup: int | str = 2
    kubelet: Mapping[str, Any] | None = None
    binding: str = ""
    total_npus: int = 0


def verdicts(statement: Statement) -> Iterator[Verdict]:
    """Yield a verdict on each of the settings that are there."""
    cpus = statement.slice_cpus or statement.container_cpus or ""
    if statement.cgroup_parent is not None:
        yield parent_verdict(statement.cgroup_parent, statement.driver)
    if statement.container_cpus is not None:
        on_cpus = set_verdict(statement.container_cpus, statement.slice_cpus, statement.host_cpus, statement.cgroup)
        cpus = on_cpus.effective or cpus
        yield on_cpus
    if statement.kubelet is not None:
        yield kubelet_verdict(statement.kubelet, statement.slice_cpus or statement.container_cpus or "")
    if statement.binding:
        yield binding_verdict(statement.binding, cpus, statement.total_npus)


def check(statement: Statement) -> Verdict:
    """Judge all settings together and return the worst verdict; among equals the first, with the effective CPUs where known."""
    found = list(verdicts(statement))
    if not found:
        raise ValueError("nothing to check: give cgroup_parent, container_cpus, kubelet or binding")
    worst = min(found, key=lambda verdict: (verdict.ok is not False, verdict.ok is True))
    effective = next((verdict.effective for verdict in found if verdict.effective), None)
    return Verdict(worst.ok, worst.message, effective)
