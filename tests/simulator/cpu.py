# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/devices/system/cpu: lists, cores and caches, and /proc/cpuinfo.

Threads of one core share the folders of topology and of the inner caches, CPUs of one last-level cache share its folder: these
are links to the first CPU's, which read as the kernel's do and keep a host of 640 CPUs small.
"""

from __future__ import annotations

from collections import defaultdict

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress

from .machine import Core, Machine
from .tree import Tree

CPU = "/sys/devices/system/cpu"
INNER_CACHES = ((1, "Data", "64K"), (1, "Instruction", "64K"), (2, "Unified", "1024K"))
LAST_LEVEL = (3, "Unified", "32768K")


def write(tree: Tree, machine: Machine) -> None:
    present = compress(machine.present)
    smt = any(len(core.threads) > 1 for core in machine.cores)
    for name, value in {
        "online": machine.online_list,
        "offline": compress(set(range(machine.possible)) - set(machine.online)),
        "present": present,
        "possible": compress(range(machine.possible)),
        "isolated": machine.isolated,
        "kernel_max": 4095,
        "smt/active": int(smt),
        "smt/control": "on" if smt else "notsupported",
    }.items():
        tree.write("%s/%s" % (CPU, name), value)
    packages, clusters, caches = defaultdict(list), defaultdict(list), defaultdict(list)
    for core in machine.cores:
        packages[core.package] += core.threads
        clusters[core.cluster] += core.threads
        caches[core.cache] += core.threads
    shared = _Shared(machine, packages, clusters, caches)
    for core in machine.cores:
        _write_core(tree, core, shared)
    _write_cpuinfo(tree, machine)


class _Shared:
    """The cpulists that many cores have in common, compressed once, and the CPU that holds a last-level cache's folder."""

    def __init__(self, machine: Machine, packages: dict, clusters: dict, caches: dict):
        self.offline = machine.offline
        self.packages = {key: machine.visible(cpus) for key, cpus in packages.items()}
        self.clusters = {key: machine.visible(cpus) for key, cpus in clusters.items()}
        self.caches = {key: machine.visible(cpus) for key, cpus in caches.items()}
        self.cache_holder: dict[int, int] = {}


def _write_core(tree: Tree, core: Core, shared: _Shared) -> None:
    online = [cpu for cpu in core.threads if cpu not in shared.offline]
    for cpu in core.threads:
        tree.write("%s/cpu%d/online" % (CPU, cpu), int(cpu in online))
    if not online:
        return
    first, siblings = "%s/cpu%d" % (CPU, online[0]), compress(online)
    attributes = {
        "thread_siblings_list": siblings,
        "core_cpus_list": siblings,
        "package_cpus_list": shared.packages[core.package],
        "core_id": core.id,
        "physical_package_id": core.package,
    }
    if core.cluster is not None:
        attributes["cluster_cpus_list"] = shared.clusters[core.cluster]
        attributes["cluster_id"] = core.cluster
    for name, value in attributes.items():
        tree.constant("%s/topology/%s" % (first, name), str(value))
    for index, cache in enumerate(INNER_CACHES):
        _write_cache(tree, "%s/cache/index%d" % (first, index), cache, siblings)
    last = "cache/index%d" % len(INNER_CACHES)
    if core.cache in shared.cache_holder:
        tree.link("%s/%s" % (first, last), "%s/cpu%d/%s" % (CPU, shared.cache_holder[core.cache], last))
    else:
        shared.cache_holder[core.cache] = online[0]
        _write_cache(tree, "%s/%s" % (first, last), LAST_LEVEL, shared.caches[core.cache])
    for cpu in online[1:]:
        tree.link("%s/cpu%d/topology" % (CPU, cpu), first + "/topology")
        tree.link("%s/cpu%d/cache" % (CPU, cpu), first + "/cache")


def _write_cache(tree: Tree, folder: str, cache: tuple[int, str, str], cpus: str) -> None:
    level, kind, size = cache
    for name, value in (("level", str(level)), ("type", kind), ("size", size), ("shared_cpu_list", cpus)):
        tree.constant("%s/%s" % (folder, name), value)


def _write_cpuinfo(tree: Tree, machine: Machine) -> None:
    """Two CPUs' worth: enough for what reads the vendor, short enough for 640 CPUs."""
    if machine.architecture == "aarch64":
        lines = (
            "BogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd01\nCPU revision\t: 0\n"
        )
    else:
        lines = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654 96-Core Processor\n"
    tree.text("/proc/cpuinfo", "\n".join("processor\t: %d\n%s" % (cpu, lines) for cpu in machine.online[:2]))
