# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import cpus as _cpus

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def processors(count, threads=1, cache=None, cluster=None, level=3, online=None):
    """Return the files of CPUs whose threads, clusters and caches are neighbours; sizes in CPUs."""

    def block(cpu, size):
        start = cpu // size * size
        return "%d-%d" % (start, start + size - 1) if size > 1 else str(cpu)

    files = {CPU + "/online": online or block(0, count), CPU + "/present": block(0, count)}
    for cpu in range(count):
        folder = "%s/cpu%d" % (CPU, cpu)
        files[folder + "/topology/thread_siblings_list"] = block(cpu, threads)
        if cluster:
            files[folder + "/topology/cluster_cpus_list"] = block(cpu, cluster)
        if cache:
            files[folder + "/cache/index0/level"] = 1
            files[folder + "/cache/index0/shared_cpu_list"] = block(cpu, threads)
            files[folder + "/cache/index1/level"] = level
            files[folder + "/cache/index1/shared_cpu_list"] = block(cpu, cache)
    return files


@pytest.mark.parametrize(
    "story, files, siblings, caches",
    [
        ("no SMT, a cache for every four", processors(8, cache=4), [], ["0-3", "4-7"]),
        ("SMT", processors(8, threads=2, cache=8), ["0-1", "2-3", "4-5", "6-7"], ["0-7"]),
        ("clusters inside the cache", processors(8, cache=8, cluster=4), [], ["0-3", "4-7"]),
        ("clusters of one core are no news", processors(8, threads=2, cache=4, cluster=2), ["0-1", "2-3", "4-5", "6-7"], ["0-3", "4-7"]),
        ("clusters as large as the cache are no news", processors(8, cache=4, cluster=4), [], ["0-3", "4-7"]),
        ("clusters larger than the cache are no news", processors(8, cache=2, cluster=4), [], ["0-1", "2-3", "4-5", "6-7"]),
        ("clusters, but no cache reported", processors(8, cluster=4), [], ["0-3", "4-7"]),
        ("nothing reported", processors(8), [], []),
        ("a thread is offline", processors(8, threads=2, cache=4, online="0-2,4-7"), ["0-1", "4-5", "6-7"], ["0-2", "4-7"]),
        ("three of a cluster are offline", processors(8, cache=8, cluster=4, online="0-4"), [], ["0-3", "4"]),
        ("a whole cache is offline", processors(8, threads=2, cache=4, online="4-7"), ["4-5", "6-7"], ["4-7"]),
    ],
)
def test_cores_and_caches(tree, story, files, siblings, caches):
    found = _cpus.cpus(tree.write(files))
    assert (found["siblings"], found["caches"]) == (siblings, caches), story


@pytest.mark.parametrize(
    "story, files, expected",
    [
        ("all online", {"online": "0-7", "present": "0-7"}, ("0-7", "", "")),
        ("some switched off", {"online": "0-3,6-7", "present": "0-7", "offline": "4-5"}, ("0-3,6-7", "4-5", "")),
        ("more possible than present", {"online": "0-7", "present": "0-7", "offline": "8-63"}, ("0-7", "", "")),
        ("an old kernel without present", {"online": "0-5", "offline": "6-7"}, ("0-5", "6-7", "")),
        ("isolated", {"online": "0-7", "present": "0-7", "isolated": "2-3"}, ("0-7", "", "2-3")),
        ("newline and NUL at the end", {"online": "0-7\n\0", "present": "0-7\n\0", "isolated": "\n\0"}, ("0-7", "", "")),
        ("nothing there", {}, ("", "", "")),
    ],
)
def test_which_cpus_there_are(tree, story, files, expected):
    found = _cpus.cpus(tree.write({CPU + "/" + name: text for name, text in files.items()}))
    assert (found["online"], found["offline"], found["isolated"]) == expected, story


def test_where_unbound_workqueues_may_run(tree):
    assert _cpus.cpus(tree.write({CPU + "/online": "0-39"}))["workqueues"] == ""
    assert _cpus.cpus(tree.write({"/sys/devices/virtual/workqueue/cpumask": "ff,0000ffff"}))["workqueues"] == "0-15,32-39"


def test_old_kernels_print_masks_and_no_lists(tree):
    files = {NODE + "/node1/cpumap": "0000000f,00000000"}
    for cpu in range(32, 36):
        folder = "%s/cpu%d" % (CPU, cpu)
        files[folder + "/online"] = "0" if cpu == 35 else "1"
        files[folder + "/topology/thread_siblings"] = "%08x,00000000" % (3 << (cpu - 32) // 2 * 2)
        files[folder + "/cache/index3/level"] = 3
        files[folder + "/cache/index3/shared_cpu_map"] = "0000000f,00000000\n"
    host = tree.write(files)
    found = _cpus.cpus(host)
    assert (found["online"], found["siblings"], found["caches"]) == ("32-34", ["32-33"], ["32-34"])
    assert [(node["id"], node["cpus"]) for node in _cpus.nodes(host, {32, 33, 34})] == [(1, "32-34")]


def test_cores_of_kernels_that_only_have_the_newer_name(tree):
    files = {CPU + "/online": "0-1", CPU + "/cpu0/topology/core_cpus_list": "0-1"}
    assert _cpus.cpus(tree.write(files))["siblings"] == ["0-1"]


def test_a_file_is_read_once_for_each_group_and_not_for_each_cpu(tree):
    tree.write(processors(16, threads=2, cache=8, cluster=4))

    class Counting(Host):
        paths = []

        def read(self, path):
            self.paths.append(path)
            return super().read(path)

    _cpus.cpus(Counting(tree.root))
    folders = [re.search(r"cpu(\d+)/(topology/(?:thread|cluster)|cache/index1/shared)", path) for path in Counting.paths]
    read = {kind: [int(match.group(1)) for match in folders if match and match.group(2).endswith(kind)] for kind in ("thread", "shared")}
    assert read == {"thread": list(range(0, 16, 2)), "shared": [0, 8]}


def test_a_broken_file_is_named(tree):
    host = tree.write({CPU + "/online": "0-7", CPU + "/cpu0/topology/thread_siblings_list": "0;4"})
    with pytest.raises(ValueError, match="^" + re.escape(CPU + "/cpu0/topology/thread_siblings_list: '0;4'")):
        _cpus.cpus(host)


def node(number, cpus, distance, memory=1048576):
    folder = "%s/node%d" % (NODE, number)
    return {
        folder + "/cpulist": cpus,
        folder + "/distance": distance,
        folder + "/meminfo": "Node %d MemTotal:       %d kB\nNode %d MemFree:  5 kB" % (number, memory, number),
    }


def nodes_of(tree, online, listed, *files):
    merged = {NODE + "/online": listed}
    for part in files:
        merged.update(part)
    return _cpus.nodes(tree.write(merged), online)


def test_distances_match_the_node_list_despite_gaps_in_numbers(tree):
    assert nodes_of(tree, set(range(8)), "0,8", node(0, "0-3", "10 40"), node(8, "4-7", "40 10", 524288)) == [
        {"id": 0, "cpus": "0-3", "memory_mib": 1024, "distances": {"0": 10, "8": 40}},
        {"id": 8, "cpus": "4-7", "memory_mib": 512, "distances": {"0": 40, "8": 10}},
    ]


def test_nodes_without_cpus_without_memory_and_with_offline_cpus(tree):
    found = nodes_of(tree, {0, 1}, "0-2", node(0, "0-3", "10 20 80"), node(1, "", "20 10 80"), node(2, "", "80 80 10", 0))
    assert [(entry["cpus"], entry["memory_mib"]) for entry in found] == [("0-1", 1024), ("", 1024), ("", 0)]


def test_a_cut_row_of_distances_is_no_row(tree):
    assert [entry["distances"] for entry in nodes_of(tree, {0}, "0-1", node(0, "0", "10"), node(1, "", "20 10"))] == [
        {},
        {"0": 20, "1": 10},
    ]


def test_memory_that_nothing_tells_is_not_0(tree):
    assert nodes_of(tree, {0}, "0", {NODE + "/node0/cpulist": "0"})[0]["memory_mib"] is None


def test_a_kernel_without_numa_is_one_node_with_everything(tree):
    host = tree.write({"/proc/meminfo": "MemTotal:        2097152 kB"})
    assert _cpus.nodes(host, {0, 1, 2}) == [{"id": 0, "cpus": "0-2", "memory_mib": 2048, "distances": {"0": 10}}]
    assert _cpus.nodes(host, set()) == []
