# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kind of machine a tree belongs to: from files, so no process is started for it."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

from .._host.host import CommandError, Host

CGROUPS = "/sys/fs/cgroup"
CONTROLLERS = CGROUPS + "/cgroup.controllers"
HIERARCHIES = ("", "/systemd", "/unified")
"""Where systemd has its groups below :data:`CGROUPS`: on v2, v1 and hybrid hosts."""
_SYSTEMD_FOLDERS = ("/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd")
_SYSTEMD_LIBRARY = re.compile(r"^libsystemd-shared-(\d+)")
_ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4")
"""vLLM-Ascend, "Optimization and Tuning", preloads jemalloc or tcmalloc."""
_CPUINFO_ARCHITECTURES = (("CPU implementer", "aarch64"), ("vendor_id", "x86_64"), ("POWER", "ppc64le"))


def machine(host: Host) -> dict[str, Any]:
    """Return ``{architecture, kernel, product, systemd, cgroup, cpusets}``; None for what the tree does not tell.

    ``systemd`` is the installed major version as a number, ``cgroup`` one of v2, v1 and hybrid. ``cpusets`` says whether the kernel offers
    cgroup v2 the controller cpuset: kernels before 5.0, ``cgroup_disable=cpuset`` and a cpuset hierarchy of version 1 withhold it.
    """
    controllers = host.read(CONTROLLERS)
    cgroups = (("v2", "/cgroup.controllers"), ("hybrid", "/unified/cgroup.controllers"), ("v1", "/cpuset"), ("v1", "/systemd"))
    return {
        "architecture": architecture(host),
        "kernel": host.read("/proc/sys/kernel/osrelease"),
        "product": (host.read("/sys/class/dmi/id/product_name") or host.read("/proc/device-tree/model") or "").strip() or None,
        "systemd": _systemd(host),
        "cgroup": next((version for version, mark in cgroups if host.exists(CGROUPS + mark)), None),
        "cpusets": None if controllers is None else "cpuset" in controllers.split(),
    }


def is_since(host: Host, *version: int) -> bool:
    """Whether the kernel is of a version, such as ``6, 2``, or newer."""
    match = re.match(r"(\d+)\.(\d+)", host.read("/proc/sys/kernel/osrelease") or "")
    return match is not None and tuple(map(int, match.groups())) >= version


def sets_cpus(facts: Mapping[str, Any]) -> bool:
    """Return whether systemd can hold CPU sets in slices, services and scopes of a :func:`machine` (systemd.resource-control(5))."""
    systemd = facts.get("systemd")
    return facts.get("cgroup") == "v2" and facts.get("cpusets") is not False and (systemd is None or systemd >= 244)


def architecture(host: Host) -> str | None:
    """Return the machine's word for itself, such as ``aarch64``; None where the tree does not tell."""
    reported = host.read("/proc/sys/kernel/arch") or (os.uname().machine if host.live else None)
    if reported:
        return reported
    cpuinfo = host.read("/proc/cpuinfo") or ""
    return next((architecture for word, architecture in _CPUINFO_ARCHITECTURES if word in cpuinfo), None)


def allocator(host: Host) -> str | None:
    """Return the path of the first memory allocator to preload that the host has, in a folder of Debian, openEuler or RHEL, or None."""
    folders = ("/usr/lib/%s-linux-gnu" % architecture(host), "/usr/lib64")
    paths = ["%s/%s" % (folder, name) for name in _ALLOCATORS for folder in folders]
    return next((path for path in paths if host.exists(path)), None)


def _systemd(host: Host) -> int | None:
    multiarch = ["/usr/lib/%s/systemd" % name for name in host.names("/usr/lib", "*-linux-gnu*")]
    for folder in list(_SYSTEMD_FOLDERS) + multiarch:
        libraries = map(_SYSTEMD_LIBRARY.match, host.names(folder, "libsystemd-shared-*.so"))
        versions = [int(match.group(1)) for match in libraries if match]
        if versions:
            return max(versions)
    try:
        match = re.match(r"systemd (\d+)", host.run(["systemctl", "--version"]).output) if host.live else None
    except CommandError:
        return None
    return int(match.group(1)) if match else None


def runs(host: Host, cgroup: str) -> bool:
    """Whether a unit's cgroup exists and holds a process; a tree that shows the folder alone counts as running."""
    folder = CGROUPS + cgroup
    return host.exists(folder) and host.read(folder + "/cgroup.procs") != ""


def slice_path(name: str) -> str:
    """Return the cgroup path of a slice from its name: ``npu-0.slice`` -> ``/npu.slice/npu-0.slice``."""
    parts = name[: -len(".slice")].split("-")
    return "".join("/%s.slice" % "-".join(parts[: count + 1]) for count in range(len(parts)))
