# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/devices/system/node and /proc/meminfo: nodes with and without CPUs and memory, ids with gaps, distances."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress

from .machine import Machine
from .tree import Tree

NODE = "/sys/devices/system/node"


def write(tree: Tree, machine: Machine) -> None:
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
