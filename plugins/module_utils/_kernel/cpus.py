# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs, cores, caches and NUMA nodes as the kernel describes them.

Source of the file formats: Linux ``Documentation/admin-guide/cputopology.rst``, ``Documentation/ABI/stable/sysfs-devices-node``
and ``Documentation/ABI/testing/sysfs-devices-system-cpu``. Nothing here depends on the affinity of the calling process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Iterator

from .._base.cpulist import compress, expand, from_mask
from .._host.host import Host

if TYPE_CHECKING:
    from .._base.documents import Cpus

CPU_FOLDER = "/sys/devices/system/cpu"
NODE_FOLDER = "/sys/devices/system/node"
UNBOUND_CPUS = "/sys/devices/virtual/workqueue/cpumask"
"""The CPUs that the kernel lets unbound workqueues run on: without those of isolcpus and nohz_full."""
_TOTAL_MEMORY = re.compile(r"MemTotal:\s*(\d+)\s*kB")


def read_list(host: Host, path: str) -> set[int]:
    """Return the set of numbers in a cpulist file; empty when it is missing. Raises ``ValueError`` naming the file."""
    return set(expand(host.read(path) or "", path))


def _members(host: Host, folder: str, cpulist: str, mask: str) -> set[int]:
    """Return the set of CPUs that a folder names in a cpulist file or, on old kernels, only in a CPU mask."""
    return read_list(host, "%s/%s" % (folder, cpulist)) or from_mask(host.read("%s/%s" % (folder, mask)) or "0")


def numbers(host: Host, folder: str, word: str) -> set[int]:
    """Return the numbers of a folder's entries ``<word><number>``."""
    return {int(name[len(word) :]) for name in host.names(folder, word + "[0-9]*") if name[len(word) :].isdigit()}


def cpus(host: Host) -> Cpus:
    """Return the CPUs of a topology. Raises ``ValueError`` when a file is no cpulist.

    ``offline`` are CPUs that are there but switched off, not those that firmware would let be added. ``workqueues`` are the online CPUs
    on which the kernel runs unbound workqueues, empty where it does not tell; isolcpus and nohz_full leave some out. ``siblings`` are the
    cores with more than one online thread. ``caches`` are the CPUs that share a last-level cache or, inside one, the kernel's clusters
    where these are larger than a core.
    """
    online = read_list(host, CPU_FOLDER + "/online")
    if not online:  # an old kernel; CPU 0 often cannot be switched off, and has no file then
        online = {cpu for cpu in numbers(host, CPU_FOLDER, "cpu") if host.read("%s/cpu%d/online" % (CPU_FOLDER, cpu)) != "0"}
    present = read_list(host, CPU_FOLDER + "/present") or read_list(host, CPU_FOLDER + "/offline")
    cores = [core for core in _partition(online, lambda cpu: _group(host, cpu, "thread_siblings", "core_cpus_list")) if len(core) > 1]
    return {
        "online": compress(online),
        "offline": compress(present - online),
        "isolated": compress(read_list(host, CPU_FOLDER + "/isolated")),
        "workqueues": compress(from_mask(host.read(UNBOUND_CPUS) or "0", UNBOUND_CPUS) & online),
        "siblings": list(map(compress, cores)),
        "caches": list(map(compress, _caches(host, online, cores))),
        "sockets": list(map(compress, _partition(online, lambda cpu: _group(host, cpu, "core_siblings", "package_cpus_list")))),
    }


def nodes(host: Host, online: set[int]) -> list[dict[str, Any]]:
    """Return the NUMA nodes as ``[{id, cpus, memory_mib, distances}]``, ascending by id.

    ``online`` is the set of online CPUs, to which ``cpus`` is cut. ``distances`` maps node ids, as text, to the firmware's relative
    distances. ``memory_mib`` is None where nothing tells. A kernel without NUMA has one memory node, 0, for everything.
    """
    ids = sorted(read_list(host, NODE_FOLDER + "/online") or numbers(host, NODE_FOLDER, "node"))
    if not ids:
        memory = memory_mib(host, "/proc/meminfo")
        return [{"id": 0, "cpus": compress(online), "memory_mib": memory, "distances": {"0": 10}}] if online else []
    rows = []
    for node in ids:
        folder = "%s/node%d" % (NODE_FOLDER, node)
        row = (host.read(folder + "/distance") or "").split()
        distances = {str(other): int(distance) for other, distance in zip(ids, row)} if len(row) == len(ids) else {}
        members = compress(_members(host, folder, "cpulist", "cpumap") & online)
        rows.append({"id": node, "cpus": members, "memory_mib": memory_mib(host, folder + "/meminfo"), "distances": distances})
    return rows


def memory_mib(host: Host, path: str) -> int | None:
    match = _TOTAL_MEMORY.search(host.read(path) or "")
    return int(match.group(1)) // 1024 if match else None


def _partition(members: set[int], group_of: Callable[[int], set[int]]) -> Iterator[set[int]]:
    """Yield disjoint sets of ``members``, asking ``group_of`` only for a CPU that no earlier group has: a file read per group."""
    covered: set[int] = set()
    for cpu in sorted(members):
        if cpu in covered:
            continue
        group = (group_of(cpu) & members) - covered
        covered |= group
        if group:
            yield group


def _group(host: Host, cpu: int, old: str, new: str) -> set[int]:
    """Return the CPUs of the same core or package, of the file that all kernels have, or of the one with the newer name."""
    folder = "%s/cpu%d/topology" % (CPU_FOLDER, cpu)
    return _members(host, folder, old + "_list", old) or read_list(host, "%s/%s" % (folder, new))


def _last_level_cache(host: Host, cpu: int) -> set[int]:
    folder = "%s/cpu%d/cache" % (CPU_FOLDER, cpu)
    indexes = host.names(folder, "index*")
    if not indexes:
        return set()
    last = max(indexes, key=lambda index: host.read_number("%s/%s/level" % (folder, index)) or 0)
    return _members(host, "%s/%s" % (folder, last), "shared_cpu_list", "shared_cpu_map")


def _caches(host: Host, online: set[int], cores: list[set[int]]) -> list[set[int]]:
    def cluster(cpu: int) -> set[int]:
        return read_list(host, "%s/cpu%d/topology/cluster_cpus_list" % (CPU_FOLDER, cpu))

    threads = {cpu: len(core) for core in cores for cpu in core}
    caches = list(_partition(online, lambda cpu: _last_level_cache(host, cpu)))
    unknown = online.difference(*caches)
    groups = []
    for cache in caches + [unknown]:
        clusters = list(_partition(cache, cluster)) if cache and cluster(min(cache)) else []
        useful = any(threads.get(min(cluster), 1) < len(cluster) < len(cache) for cluster in clusters)
        if useful and sum(map(len, clusters)) == len(cache):
            groups.extend(clusters)
        elif cache is not unknown:
            groups.append(cache)
    return sorted(groups, key=min)
