# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the memory of processes and control groups lies, what nodes can hold, and moving it."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest
from tests.fakes.workers import npu, process

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.threads import memory
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import PROGRESS, Migration, memory_of, tables
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.tasks import Process
from ansible_collections.npu.affinity.plugins.module_utils._kernel import memory as groups

HEAP = "55fbe8134000 default heap anon=%d dirty=%d%s kernelpagesize_kB=4"
HUGE = "7f2280000000 default file=/dev/hugepages/x huge dirty=3 N1=3 kernelpagesize_kB=2048"
MOVER = """import json, os, re, sys
root, pid, source, target = sys.argv[0].rpartition("/usr/bin/")[0], *sys.argv[1:]
path = root + "/proc/%s/numa_maps" % pid
with open(sys.argv[0] + ".calls", "a") as calls:
    progress = json.load(open(root + "/run/npu-affinity/migration.json"))
    calls.write(json.dumps([pid, source, target, progress["moved_mib"], progress["total_mib"]]) + "\\n")
if os.path.exists(sys.argv[0] + ".kill"):
    sys.exit("no room")
text = open(path).read()
lines = [line.replace(" N%s=" % source, " N%s=" % target) if "heap" in line else line for line in text.splitlines()]
open(path, "w").write("\\n".join(lines) + "\\n")
"""
PAGES = [
    ("", {}),
    ("7ffd3a1f2000 default stack anon=2 dirty=2", {}),
    (HEAP % (512, 512, " N0=512"), {0: 2.0}),
    (HEAP % (768, 768, " N0=256 N12=512"), {0: 1.0, 12: 2.0}),
    (HEAP % (256, 256, " N1=256") + "\n" + HUGE, {1: 7.0}),
    ("7f00 default anon=256 N0=256", {0: 4.0}),
    ("7f00 bind:0-1 file=/lib/N3=9.so mapped=256 N0=256 kernelpagesize_kB=16", {0: 4.0}),
]


@pytest.mark.parametrize("text, table", PAGES)
def test_pages_are_counted_by_node_and_size(text, table):
    assert memory.pages_by_node(text, page_kib=16) == table


def maps(tree, pid, **pages):
    nodes = "".join(" %s=%d" % item for item in sorted(pages.items()))
    tree.write({"/proc/%d/numa_maps" % pid: HEAP % (1, 1, nodes) + "\n7ffd default stack anon=1 N0=1 kernelpagesize_kB=4"})


def worker(tree, pid, *npus):
    process(tree, pid, "/npu.slice", ["VLLM::Worker"])
    return Process(pid, "VLLM::Worker", list(npus), "npu.slice")


def test_the_table_tells_what_lies_on_foreign_nodes(tree):
    workers = worker(tree, 10, npu(1, 8), npu(2, 16)), worker(tree, 11, npu(0, 0, memory_nodes="")), worker(tree, 12, npu(0, 0))
    maps(tree, 10, N0=2560, N1=512, N2=256)
    maps(tree, 11, N0=256)
    rows, warnings = tables(tree.host, [*workers, Process(13, "ended", [npu(0, 0)], "npu.slice")])
    assert rows == [
        {"pid": 10, "name": "VLLM::Worker", "npus": [1, 2], "wanted": "1-2", "mib": {"0": 10.0, "1": 2.0, "2": 1.0}, "remote_mib": 10.0},
        {"pid": 11, "name": "VLLM::Worker", "npus": [0], "wanted": "", "mib": {"0": 1.0}, "remote_mib": 0.0},
    ]
    why = "/proc/12/numa_maps does not exist: this kernel is built without NUMA"
    assert warnings == ["the memory of process 12 (VLLM::Worker) of NPU 0 is not known: " + why]


def install(tree):
    """Install a tool that moves pages as migratepages does; return what tells its calls."""
    path = tree.tool("/usr/bin/migratepages", {})
    with open(path, "w") as file:
        file.write("#!%s -IS\n%s" % (os.path.realpath(sys.executable), MOVER))
    return lambda: [json.loads(line) for line in tree.calls("/usr/bin/migratepages")]


def migrate(tree, processes):
    migration = Migration(tree.host, processes)
    migration.carry_out()
    return migration


@pytest.fixture
def team(tree):
    """Two workers: one with memory on two remote nodes, one with a little on its own."""
    first, second = worker(tree, 10, npu(2, 16)), worker(tree, 11, npu(1, 8))
    maps(tree, 10, N0=25600, N1=51200, N2=256)
    maps(tree, 11, N1=512)
    return [first, second]


def test_memory_moves_to_its_npus_nodes_and_reports_progress(tree, team):
    calls = install(tree)
    migration = Migration(tree.host, team)
    migration.refuse_above(1000)
    assert round(migration.total) == 300
    migration.carry_out()
    assert calls() == [["10", "1", "2", 0, 300.0], ["10", "0", "2", 200.0, 300.0]]
    assert [(step["source"], step["mib"], step["left_mib"]) for step in migration.steps] == [(1, 200.0, 0), (0, 100.0, 0.0)]
    assert (round(migration.moved()), migration.failed, migration.warnings) == (300, [], [])
    assert memory_of(tree.host, 10)[2] == 301.0
    assert not tree.host.exists(PROGRESS)
    assert Migration(tree.host, team).todo == []


@pytest.fixture
def near(tree):
    """A worker with two nodes, and memory on a third one, too."""
    maps(tree, 10, N0=25600, N1=51200, N2=256)
    return worker(tree, 10, npu(2, 16, memory_nodes="1-2"))


def test_allowed_memory_stays_and_the_rest_moves_to_a_near_node(tree, near):
    calls = install(tree)
    assert tables(tree.host, [near])[0][0]["wanted"] == "1-2"
    assert round(migrate(tree, [near]).total) == 100
    assert [call[:3] for call in calls()] == [["10", "0", "2"]]
    assert Migration(tree.host, [worker(tree, 10, npu(2, 16, memory_nodes=""))]).todo == []


def test_what_the_nearest_node_cannot_hold_moves_to_another(tree, near):
    calls = install(tree)
    with open(tree.root + "/usr/bin/migratepages", "a") as file:
        file.write("target == '2' and open(path, 'w').write(text)\n")
    migration = migrate(tree, [near])
    assert [call[:3] for call in calls()] == [["10", "0", "2"], ["10", "0", "1"]]
    assert (round(migration.moved()), migration.warnings) == (100, [])


TOO_MUCH = (
    "300 MiB of memory would move, and npu_affinity_threads_memory_limit is 299 MiB: process 10 (VLLM::Worker) of NPU 2 has "
    "300 MiB on nodes 0-1 and belongs on 2. The processes would stall for about 1 s. Raise npu_affinity_threads_memory_limit to 301, "
    "or restart them in the slice of their device, where their memory comes from the right node at once"
)
NO_TOOL = "migratepages was not found in /usr/bin, /usr/local/bin, /bin; install numactl on this host"


@pytest.mark.parametrize("limit, sentence", [(1000, NO_TOOL), (299, TOO_MUCH)])
def test_above_the_limit_or_without_the_tool_nothing_moves(tree, team, limit, sentence):
    if limit < 1000:
        install(tree)
    with pytest.raises(ValueError, match="^%s$" % re.escape(sentence)):
        Migration(tree.host, team).refuse_above(limit)


def test_what_does_not_move_is_said_and_no_failure(tree, team):
    install(tree)
    tree.write({"/usr/bin/migratepages.kill": ""})
    migration = migrate(tree, team)
    assert (migration.moved(), migration.failed) == (0, [])
    stays = "process 10 (VLLM::Worker) of NPU 2: %d MiB stay on node %d: no room"
    assert migration.warnings == [stays % (200, 1), stays % (100, 0)]


def test_a_run_stopped_halfway_is_finished_by_the_next_one(tree, team, monkeypatch):
    calls, run = install(tree), tree.host.run

    def once(argv, **options):
        if argv[2] == "0":
            raise memory.CommandError("'migratepages' did not answer within 30 s and was killed")
        return run(argv, **options)

    with monkeypatch.context() as slow:
        slow.setattr(tree.host, "run", once)
        assert migrate(tree, team).failed == [
            "process 10 (VLLM::Worker) of NPU 2: moving 100 MiB from node 0: 'migratepages' did not answer within 30 s and was killed; "
            "the next bind with npu_affinity_threads_memory_limit moves the rest"
        ]
    second = migrate(tree, team)
    assert (round(second.total), calls()[-1][:3], second.failed) == (100, ["10", "0", "2"], [])


def test_a_process_that_ends_meanwhile_is_no_failure(tree, team, monkeypatch):
    install(tree)
    migration = Migration(tree.host, team)
    monkeypatch.setattr(memory, "memory_of", lambda host, pid: None)
    migration.carry_out()
    assert (migration.steps, migration.failed) == ([], [])


def test_memory_that_may_not_be_read_says_so(tree, team, monkeypatch):
    def forbidden(*_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", forbidden)
    with pytest.raises(memory.Unreadable, match=r"^/proc/10/numa_maps could not be read \(Permission denied\); run as root$"):
        memory_of(tree.host, 10)


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="this kernel has no numa_maps")
def test_memory_on_nodes_of_a_real_process_matches_the_kernel():
    greedy = "data = bytearray(b'x') * (64 * 1024 * 1024); print('ready', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", greedy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        counted = sum(memory_of(Host(), process.pid).values())
        with open("/proc/%d/status" % process.pid) as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024.0
    finally:
        process.kill()
        process.communicate()
    assert counted > 64 and abs(counted - resident) < 8


GROUP, MIB, PAGE = "/sys/fs/cgroup/npu.slice/npu-0.slice", 1 << 20, os.sysconf("SC_PAGE_SIZE")
STAT = "anon N0=%d N1=%d\nfile N0=%d N1=%d\nkernel_stack N0=16384 N1=0\nshmem N0=%d N1=%d\nfile_mapped N0=4096 N1=0\n"
V1 = "total=9 N0=9\nfile=9 N0=9\nhierarchical_file=%d N0=%d N1=0\nhierarchical_anon=3 N0=1 N1=2\n" % (5, 5)
USED = {
    "anonymous and file memory, shared memory once": (STAT % (5 * MIB, 0, MIB, 7 * MIB, MIB, 7 * MIB), {0: 6 * MIB, 1: 7 * MIB}),
    "a kernel with another format": ("total=5 N0=5\n", {}),
    "an empty group": ("", {}),
    "cgroup v1, in pages, with the groups below": (V1, {0: 6 * PAGE, 1: 2 * PAGE}),
    "a kernel before 5.10": (None, None),
}


@pytest.mark.parametrize("text, expected", USED.values(), ids=USED)
def test_memory_of_a_group_is_counted_by_node(tree, text, expected):
    tree.write({} if text is None else {GROUP + "/memory.numa_stat": text})
    assert groups.used_by_node(tree.host, GROUP) == expected


def test_room_is_what_is_free_or_easily_freed(tree):
    meminfo = "Node {0} MemTotal: 9000 kB\nNode {0} MemFree: {1} kB\nNode {0} Inactive: 99 kB\nNode {0} Inactive(file): {2} kB\n"
    for node, kib in {0: (600, 400), 12: (3072, 0)}.items():
        tree.write({"/sys/devices/system/node/node%d/meminfo" % node: meminfo.format(node, *kib)})
    assert groups.room_of_nodes(tree.host) == {0: 1000 << 10, 12: 3 << 20}
    assert groups.memory(tree.host, ()) == {}
    assert groups.memory(tree.host, (), has_users=True) == {"room_mib": {"0": 0, "12": 3}, "units": {}}
    tree.write({"/proc/sys/vm/min_free_kbytes": "2000"})
    assert groups.room_of_nodes(tree.host) == {0: 0, 12: 1072 << 10}


def test_what_lies_elsewhere_is_counted():
    assert [groups.outside({0: 3, 1: 4, 7: 5}, nodes) for nodes in ([0], [0, 1, 7], [])] == [9, 0, 12]


def test_slices_of_npus_and_named_services_are_looked_at(tree):
    assert groups.memory(tree.host, {"a.service"}) == {}
    places = ["npu.slice", "npu.slice/npu-0.slice", "npu.slice/npu-0.slice/a.service", "system.slice/b.service", "system.slice/c.service"]
    stat = STAT % (5 * MIB, 0, 0, 7 * MIB, 0, 0)
    tree.write({"/sys/fs/cgroup/%s/memory.numa_stat" % place: stat for place in places})
    tree.write({"/sys/fs/cgroup/npu.slice/npu-1.slice/memory.numa_stat": "anon N0=4096 N1=0\n", GROUP + "/cpuset.mems.effective": "0-1"})
    units = groups.memory(tree.host, {"a.service", "b.service"})["units"]
    assert sorted(units) == ["a.service", "b.service", "npu-0.slice", "npu.slice"]
    assert units["npu-0.slice"] == {"mems": "0-1", "mib": {"0": 5, "1": 7}}


def test_memory_is_not_known_where_the_kernel_does_not_tell(tree):
    folders = {"/npu.slice": 1, "/npu.slice/npu-0.slice": 1, "/npu.slice/npu-1.slice": 0}
    tree.write({"/sys/fs/cgroup%s/cgroup.events" % group: "populated %d\nfrozen 0\n" % number for group, number in folders.items()})
    tree.write({"/sys/fs/cgroup/npu.slice/memory.numa_stat": "anon N0=4096 N1=0\n", GROUP + "/cpuset.mems.effective": "0-1"})
    assert groups.memory(tree.host, ())["units"] == {"npu-0.slice": {"mems": "0-1", "mib": None}}


def test_the_memory_of_a_group_is_found_on_cgroup_v2_and_v1(tree):
    tree.write({"/sys/fs/cgroup/a.slice/memory.numa_stat": STAT % (5 * MIB, 0, 0, 7 * MIB, 0, 0)})
    tree.write({"/sys/fs/cgroup/memory/docker/x/memory.numa_stat": "hierarchical_anon=0 N1=%d\n" % (3 * MIB // PAGE)})
    assert [groups.mib_of_group(tree.host, group) for group in ("/a.slice", "/b.slice", "/docker/x")] == [{"0": 5, "1": 7}, {}, {"1": 3}]
