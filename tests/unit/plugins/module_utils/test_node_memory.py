# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the memory of control groups lies, and what nodes can hold."""

from __future__ import annotations

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import memory, mib_of_group, outside, room_of_nodes, used_by_node

GROUP = "/sys/fs/cgroup/npu.slice/npu-0.slice"
MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
STAT = "anon N0=%d N1=%d\nfile N0=%d N1=%d\nkernel_stack N0=16384 N1=0\nshmem N0=%d N1=%d\nfile_mapped N0=4096 N1=0\n"
USED = [
    ("anonymous and file memory, shared memory once", STAT % (5 * MIB, 0, MIB, 7 * MIB, MIB, 7 * MIB), {0: 6 * MIB, 1: 7 * MIB}),
    ("a kernel with another format", "total=5 N0=5\n", {}),
    ("an empty group", "", {}),
    (
        "cgroup v1, in pages, with the groups below",
        "total=9 N0=9\nfile=9 N0=9\nhierarchical_file=%d N0=%d N1=0\nhierarchical_anon=3 N0=1 N1=2\n" % (5, 5),
        {0: 6 * PAGE, 1: 2 * PAGE},
    ),
    ("a kernel before 5.10", None, None),
]


@pytest.mark.parametrize("text, expected", [row[1:] for row in USED], ids=[row[0] for row in USED])
def test_memory_of_a_group_is_counted_by_node(tree, text, expected):
    tree.write({} if text is None else {GROUP + "/memory.numa_stat": text})
    assert used_by_node(tree.host, GROUP) == expected


def test_room_is_what_is_free_or_easily_freed(tree):
    meminfo = "Node {0} MemTotal: 9000 kB\nNode {0} MemFree: {1} kB\nNode {0} Inactive: 99 kB\nNode {0} Inactive(file): {2} kB\n"
    tree.write(
        {"/sys/devices/system/node/node%d/meminfo" % node: meminfo.format(node, *kb) for node, kb in {0: (600, 400), 12: (3072, 0)}.items()}
    )
    assert room_of_nodes(tree.host) == {0: 1000 << 10, 12: 3 << 20}
    assert memory(tree.host, ()) == {}
    assert memory(tree.host, (), has_users=True) == {"room_mib": {"0": 0, "12": 3}, "units": {}}
    tree.write({"/proc/sys/vm/min_free_kbytes": "2000"})
    assert room_of_nodes(tree.host) == {0: 0, 12: 1072 << 10}


def test_what_lies_elsewhere_is_counted():
    assert [outside({0: 3, 1: 4, 7: 5}, nodes) for nodes in ([0], [0, 1, 7], [])] == [9, 0, 12]


def test_slices_of_npus_and_named_services_are_looked_at(tree):
    assert memory(tree.host, {"a.service"}) == {}
    stat = STAT % (5 * MIB, 0, 0, 7 * MIB, 0, 0)
    groups = [
        "/npu.slice",
        "/npu.slice/npu-0.slice",
        "/npu.slice/npu-0.slice/a.service",
        "/system.slice/b.service",
        "/system.slice/c.service",
    ]
    tree.write({"/sys/fs/cgroup%s/memory.numa_stat" % group: stat for group in groups})
    tree.write({"/sys/fs/cgroup/npu.slice/npu-1.slice/memory.numa_stat": "anon N0=4096 N1=0\n", GROUP + "/cpuset.mems.effective": "0-1"})
    found = memory(tree.host, {"a.service", "b.service"})
    assert sorted(found["units"]) == ["a.service", "b.service", "npu-0.slice", "npu.slice"]
    assert found["units"]["npu-0.slice"] == {"mems": "0-1", "mib": {"0": 5, "1": 7}}


def test_memory_is_not_known_where_the_kernel_does_not_tell(tree):
    folders = {"/npu.slice": 1, "/npu.slice/npu-0.slice": 1, "/npu.slice/npu-1.slice": 0}
    tree.write({"/sys/fs/cgroup%s/cgroup.events" % group: "populated %d\nfrozen 0\n" % number for group, number in folders.items()})
    tree.write({"/sys/fs/cgroup/npu.slice/memory.numa_stat": "anon N0=4096 N1=0\n", GROUP + "/cpuset.mems.effective": "0-1"})
    assert memory(tree.host, ())["units"] == {"npu-0.slice": {"mems": "0-1", "mib": None}}


def test_the_memory_of_a_group_is_found_on_cgroup_v2_and_v1(tree):
    tree.write({"/sys/fs/cgroup/a.slice/memory.numa_stat": STAT % (5 * MIB, 0, 0, 7 * MIB, 0, 0)})
    assert mib_of_group(tree.host, "/a.slice") == {"0": 5, "1": 7}
    assert mib_of_group(tree.host, "/b.slice") == {}
    tree.write({"/sys/fs/cgroup/memory/docker/x/memory.numa_stat": "hierarchical_anon=0 N1=%d\n" % (3 * MIB // PAGE)})
    assert mib_of_group(tree.host, "/docker/x") == {"1": 3}
