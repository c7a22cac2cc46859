# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/devices/system/cpu and node: lists, cores, caches, ids with gaps and distances; /proc/cpuinfo and /proc/meminfo.

Threads of one core share the folders of topology and of the inner caches, CPUs of one last-level cache share its folder: these
are links to the first CPU's, which read as the kernel's do and keep a host of 640 CPUs small.
"""

from __future__ import annotations

from collections import defaultdict

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress

from .machine import Core, Machine
from .tree import Tree

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
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
    lists = {kind: _shared(machine, kind) for kind in ("package", "cluster", "cache")}
    holders: dict[int, int] = {}
    for core in machine.cores:
        for cpu in core.threads:
            tree.write("%s/cpu%d/online" % (CPU, cpu), int(cpu not in machine.offline))
        if online := [cpu for cpu in core.threads if cpu not in machine.offline]:
            _write_core(tree, core, online, lists, holders)
    _write_cpuinfo(tree, machine)
    _write_nodes(tree, machine)


def _shared(machine: Machine, kind: str) -> dict[int | None, str]:
    """Return the cpulists that many cores have in common, compressed once."""
    found = defaultdict(list)
    for core in machine.cores:
        found[getattr(core, kind)] += core.threads
    return {number: machine.visible(cpus) for number, cpus in found.items()}


def _write_core(tree: Tree, core: Core, online: list[int], lists: dict[str, dict[int | None, str]], holders: dict[int, int]) -> None:
    """``holders``: the CPU that holds the folder of each last-level cache."""
    first, siblings = "%s/cpu%d" % (CPU, online[0]), compress(online)
    attributes = {
        "thread_siblings_list": siblings,
        "core_cpus_list": siblings,
        "package_cpus_list": lists["package"][core.package],
        "core_id": core.id,
        "physical_package_id": core.package,
    }
    if core.cluster is not None:
        attributes["cluster_cpus_list"] = lists["cluster"][core.cluster]
        attributes["cluster_id"] = core.cluster
    for name, value in attributes.items():
        tree.constant("%s/topology/%s" % (first, name), str(value))
    for index, cache in enumerate(INNER_CACHES):
        _write_cache(tree, "%s/cache/index%d" % (first, index), cache, siblings)
    last = "cache/index%d" % len(INNER_CACHES)
    if core.cache in holders:
        tree.link("%s/%s" % (first, last), "%s/cpu%d/%s" % (CPU, holders[core.cache], last))
    else:
        holders[core.cache] = online[0]
        _write_cache(tree, "%s/%s" % (first, last), LAST_LEVEL, lists["cache"][core.cache])
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


def _write_nodes(tree: Tree, machine: Machine) -> None:
    ids = compress(node.id for node in machine.nodes)
    with_cpus = compress(node.id for node in machine.nodes if machine.node_lists[node.id])
    for name, value in {
        "online": ids,
        "possible": ids,
        "has_cpu": with_cpus,
        "has_memory": machine.memory_nodes,
        "has_normal_memory": machine.memory_nodes,
    }.items():
        tree.write("%s/%s" % (NODE, name), value)
    for node in machine.nodes:
        folder = "%s/node%d" % (NODE, node.id)
        cpulist = machine.node_lists[node.id]
        total = node.memory_mib * 1024
        tree.write(folder + "/cpulist", cpulist)
        tree.write(folder + "/cpumap", machine.mask(cpulist))
        tree.write(folder + "/distance", " ".join(str(distance) for distance in node.distances))
        amounts = (("MemTotal", total), ("MemFree", total * 9 // 10), ("MemUsed", total - total * 9 // 10))
        pages = folder + "/hugepages/hugepages-2048kB"
        if total:
            tree.write(pages + "/nr_hugepages", 0, volatile=True)
            tree.link(pages + "/free_hugepages", pages + "/nr_hugepages")  # nothing uses them
            tree.constant(pages + "/surplus_hugepages", 0)
        tree.text(folder + "/meminfo", "".join("Node %d %-10s %12d kB\n" % (node.id, name + ":", size) for name, size in amounts))
    total = sum(node.memory_mib for node in machine.nodes) * 1024
    tree.text("/proc/meminfo", "MemTotal:       %d kB\nMemFree:        %d kB\n" % (total, total * 9 // 10))
