# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is a container, a chroot or a virtual machine, and which machine it is. Reads only.

What a bind writes in a container is lost with it, and lxcfs shows CPUs there that are not those of its cpuset (lxc/lxcfs issue 731). The
names of virtual machines are those of systemd-detect-virt(1).
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Iterator

from .._base.cpulist import compress, expand
from .._host.host import Host
from .isolation import partitions
from .machine import CGROUPS
from .processes import BOOT

CONTAINER, CHROOT, VIRTUAL = "container", "chroot", "virtual machine"
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
_MARKS = ("/run/systemd/container", "/.dockerenv", "/run/.containerenv")
_ROOT_CPUSETS = (CGROUPS + "/cpuset.cpus.effective", CGROUPS + "/cpuset/cpuset.effective_cpus")
_GUEST = re.compile(r"KVM|QEMU|VMware|VirtualBox|Virtual Machine|Xen|Bochs|BHYVE|OpenStack|KubeVirt|Google Compute Engine|Huawei Cloud")
_CLOUD, _METAL = re.compile(r"Amazon EC2|Alibaba Cloud"), re.compile(r"\bmetal\b|\.metal|ebm|Bare", re.IGNORECASE)


def surroundings(host: Host, online: set[int]) -> dict[str, str] | None:
    """Return ``{kind, why}`` of a host that is no machine of its own, None for one that is, and where nothing tells."""
    for kind, reasons in ((CHROOT, _chroot(host)), (CONTAINER, _container(host, online)), (VIRTUAL, _virtual(host))):
        why = next(reasons, None)
        if why:
            return {"kind": kind, "why": why}
    return None


def _chroot(host: Host) -> Iterator[str]:
    try:
        if host.live and not os.path.samestat(os.stat("/"), os.stat("/proc/1/root/.")):
            yield "the root of PID 1 is another one"
    except OSError:
        pass  # without root's rights, or without /proc, nothing tells


def _container(host: Host, online: set[int]) -> Iterator[str]:
    first = host.read("/proc/1/comm")
    if first is None:
        return  # an image, or an archive without processes
    if first not in ("systemd", "init"):
        yield "PID 1 is %s, not systemd" % first
    for path in _MARKS:
        if host.exists(path):
            yield "%s exists" % path
    if any(line.split()[2:3] == ["fuse.lxcfs"] for line in (host.read("/proc/mounts") or "").splitlines()):
        yield "lxcfs is mounted over files of /proc or /sys"
    granted = set(expand(next((text for text in map(host.read, _ROOT_CPUSETS) if text), "")))
    elsewhere = {cpu for part in partitions(host, []) if part["valid"] for cpu in expand(part["cpus"])}
    elsewhere.update(expand(host.read(CGROUPS + "/cpuset.cpus.isolated") or ""))
    if granted and online - granted - elsewhere:
        yield "the root cpuset has CPUs %s, but CPUs %s are online" % (compress(granted), compress(online))
    match = _ALLOWED.search(host.read("/proc/1/status") or "")
    allowed = set(expand(match.group(1))) if match else online
    if online and allowed.isdisjoint(online):
        yield "PID 1 may use CPUs %s, but CPUs %s are online" % (compress(allowed), compress(online))


def _virtual(host: Host) -> Iterator[str]:
    names = [host.read("/sys/class/dmi/id/" + name) or "" for name in ("sys_vendor", "product_name")]
    text = " ".join(names).strip()
    if _GUEST.search(text) or _CLOUD.search(text) and not _METAL.search(text):
        yield "its firmware calls it %s" % text


def identity(host: Host) -> str | None:
    """Return a digest that is the same for all names of a running machine, containers on it included, and for no other; None if unknown.

    Machines from one image can have one machine id, so that counts only where there is no boot id.
    """
    source = host.read(BOOT) or host.read("/etc/machine-id")
    return hashlib.sha256(source.encode()).hexdigest()[:16] if source else None
