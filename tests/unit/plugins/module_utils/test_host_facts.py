# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's own files tell: its CPUs and NUMA nodes, accelerators, kind, surroundings and isolated CPUs."""

from __future__ import annotations

import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import cpus, machine, pci
from ansible_collections.npu.affinity.plugins.module_utils._kernel.isolation import isolation
from ansible_collections.npu.affinity.plugins.module_utils._kernel.nics import neighbours
from ansible_collections.npu.affinity.plugins.module_utils._kernel.surroundings import identity, surroundings
from tests.fakes.systemd import ModelledSystemd

CPU, NODE, GROUPS = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup/"
V2 = GROUPS + "cgroup.controllers"


def cpu(**files):
    return {"%s/%s" % (CPU, name): text for name, text in files.items()}


def masks():
    """Return the files of CPUs 32 to 35 as old kernels print them: masks and no lists."""
    files = {NODE + "/node1/cpumap": "0000000f,00000000"}
    for number in range(32, 36):
        folder = "%s/cpu%d" % (CPU, number)
        files[folder + "/online"] = "0" if number == 35 else "1"
        files[folder + "/topology/thread_siblings"] = "%08x,00000000" % (3 << (number - 32) // 2 * 2)
        files.update({folder + "/cache/index3/level": 3, folder + "/cache/index3/shared_cpu_map": "0000000f,00000000\n"})
    return files


CPUS = {
    # story: files, some of what is found
    "all online": (cpu(online="0-7", present="0-7"), {"online": "0-7", "offline": "", "isolated": ""}),
    "some switched off": (cpu(online="0-3,6-7", present="0-7", offline="4-5"), {"online": "0-3,6-7", "offline": "4-5"}),
    "more possible than present": (cpu(online="0-7", present="0-7", offline="8-63"), {"online": "0-7", "offline": ""}),
    "an old kernel without present": (cpu(online="0-5", offline="6-7"), {"online": "0-5", "offline": "6-7"}),
    "isolated": (cpu(online="0-7", present="0-7", isolated="2-3"), {"online": "0-7", "isolated": "2-3"}),
    "newline and NUL at the end": (cpu(online="0-7\n\0", present="0-7\n\0", isolated="\n\0"), {"online": "0-7", "isolated": ""}),
    "nothing there": ({}, {"online": "", "offline": "", "isolated": ""}),
    "workqueues anywhere": (cpu(online="0-39"), {"workqueues": ""}),
    "workqueues on some": ({**cpu(online="0-39"), "/sys/devices/virtual/workqueue/cpumask": "ff,0000ffff"}, {"workqueues": "0-15,32-39"}),
    "masks": (masks(), {"online": "32-34", "siblings": ["32-33"], "caches": ["32-34"]}),
    "the newer name of cores": ({**cpu(online="0-1"), CPU + "/cpu0/topology/core_cpus_list": "0-1"}, {"siblings": ["0-1"]}),
}


def node(number, cpulist, distance, memory=1048576):
    text = "Node %d MemTotal:       %d kB\nNode %d MemFree:  5 kB" % (number, memory, number)
    return {"%s/node%d/%s" % (NODE, number, name): text for name, text in (("cpulist", cpulist), ("distance", distance), ("meminfo", text))}


def nodes(online, listed, *files):
    return {CPU + "/online": online, NODE + "/online": listed, **{path: text for part in files for path, text in part.items()}}


def found_node(number, cpulist, memory, **distances):
    return {"id": number, "cpus": cpulist, "memory_mib": memory, "distances": {name[1:]: value for name, value in distances.items()}}


NODES = {
    "masks": ({CPU + "/online": "32-34", NODE + "/node1/cpumap": "0000000f,00000000"}, [found_node(1, "32-34", None)]),
    "gaps in their numbers": (
        nodes("0-7", "0,8", node(0, "0-3", "10 40"), node(8, "4-7", "40 10", 524288)),
        [found_node(0, "0-3", 1024, n0=10, n8=40), found_node(8, "4-7", 512, n0=40, n8=10)],
    ),
    "without CPUs, with offline ones, and without memory": (
        nodes("0-1", "0-2", node(0, "0-3", "10 20 80"), node(1, "", "20 10 80"), node(2, "", "80 80 10", 0)),
        [found_node(0, "0-1", 1024, n0=10, n1=20, n2=80), found_node(1, "", 1024, n0=20, n1=10, n2=80)]
        + [found_node(2, "", 0, n0=80, n1=80, n2=10)],
    ),
    "a row of distances that is cut": (
        nodes("0", "0-1", node(0, "0", "10"), node(1, "", "20 10")),
        [found_node(0, "0", 1024), found_node(1, "", 1024, n0=20, n1=10)],
    ),
    "memory that nothing tells is not 0": (nodes("0", "0", {NODE + "/node0/cpulist": "0"}), [found_node(0, "0", None)]),
    "a kernel without NUMA": ({**cpu(online="0-2"), "/proc/meminfo": "MemTotal:        2097152 kB"}, [found_node(0, "0-2", 2048, n0=10)]),
    "nothing there": ({}, []),
}
FUNCTION = "0000:c1:00.0"


def function(vendor, device, kind, numa="6", **more):
    files = {"vendor": vendor, "device": device, "class": kind, **({} if numa is None else {"numa_node": numa})}
    return dict({"/sys/bus/pci/devices/%s/%s" % (FUNCTION, name): text for name, text in files.items()}, **more)


def of_family(family, numa=6):
    return {FUNCTION: {"family": family, "numa": numa}}, []


ASCEND = {"0xd100": "310", "0xd107": "310", "0xd500": "310p", "0xd801": "910", "0xd802": "a2", "0xd803": "a3", "0xd806": "a5"}
OTHERS = {
    "the compression engine of a Kunpeng": ("0x19e5", "0xa250", "0x120000"),
    "the display of a management controller": ("0x19e5", "0x1711", "0x030000"),
    "a bridge with an NPU's device id": ("0x19e5", "0xd802", "0x060400"),
    "an NPU's device id of another vendor": ("0x1af4", "0xd802", "0x120000"),
    "the audio function of an NVIDIA card": ("0x10de", "0x1aef", "0x040300"),
    "AMD display": ("0x1002", "0x73bf", "0x030000"),
}
WITH_CPUS = {"0": 0, "3": 3, "0-1": None, "0,2": None}
"""The only node with CPUs is that of every function whose node the kernel does not know."""
ACCELERATORS = {
    **{"Ascend " + device: (function("0x19e5", device, "0x120000"), of_family(family)) for device, family in ASCEND.items()},
    **{story: (function(*of_other), ({}, [])) for story, of_other in OTHERS.items()},
    "NVIDIA 3D controller": (function("0x10de", "0x26b9", "0x030200"), of_family("gpu")),
    "NVIDIA display": (function("0x10de", "0x2204", "0x030000"), of_family("gpu")),
    "class 0x120001": (function("0x19e5", "0xd803", "0x120001"), of_family("a3")),
    "node 0": (function("0x19e5", "0xd802", "0x120000", "0"), of_family("a2", 0)),
    **{"node %r" % node: (function("0x19e5", "0xd802", "0x120000", node), of_family("a2", None)) for node in ("-1", None, "")},
    **{
        "CPUs on %s" % nodes: ({NODE + "/has_cpu": nodes, **function("0x10de", "0x2335", "0x030200", "-1")}, of_family("gpu", numa))
        for nodes, numa in WITH_CPUS.items()
    },
    "no PCI bus at all": ({}, ({}, [])),
}


def of_kind(architecture, kernel, product, systemd, cgroup):
    return {"architecture": architecture, "kernel": kernel, "product": product, "systemd": systemd, "cgroup": cgroup}


def sets(cpusets, sets_cpus):
    return {"cpusets": cpusets, "sets_cpus": sets_cpus}


SYSTEMD = "/usr/lib/systemd/libsystemd-shared-%d.so"
SERVER = {"/proc/sys/kernel/arch": "aarch64", "/proc/sys/kernel/osrelease": "5.10.0-1.aarch64", V2: "cpuset cpu"}
SERVER.update({"/sys/class/dmi/id/product_name": "Atlas 800I A2 ", "/usr/lib64/systemd/libsystemd-shared-249-9.so": ""})
ANOTHER = {"/proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel", "/proc/device-tree/model": "Model S\0", GROUPS + "cpuset": None}
ANOTHER.update({"/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so": "", GROUPS + "unified/cgroup.controllers": ""})
OLDER = {"/proc/cpuinfo": "CPU implementer : 0x48", GROUPS + "cpuset": None}
MACHINES = {
    "nothing": ({}, of_kind(None, None, None, None, None)),
    "a server": (SERVER, of_kind("aarch64", "5.10.0-1.aarch64", "Atlas 800I A2", 249, "v2")),
    "another one": (ANOTHER, of_kind("x86_64", None, "Model S", 257, "hybrid")),
    "an older one": (OLDER, of_kind("aarch64", None, None, None, "v1")),
    "v2 with the controller": ({V2: "cpu cpuset io", SYSTEMD % 244: ""}, sets(True, True)),
    "v2 without it": ({V2: "cpu io memory pids", SYSTEMD % 249: ""}, sets(False, False)),
    "v2 without any": ({V2: "", SYSTEMD % 249: ""}, sets(False, False)),
    "an old systemd": ({V2: "cpuset cpu", SYSTEMD % 243: ""}, sets(True, False)),
    "v2, systemd unknown": ({V2: "cpuset cpu"}, sets(True, True)),
    "v1": ({GROUPS + "cpuset": None, SYSTEMD % 249: ""}, sets(None, False)),
}
DEBIAN, RHEL = "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"


def installed(*files):
    return {"/proc/sys/kernel/arch": "aarch64", **dict.fromkeys(files, "")}


ALLOCATORS = {
    "none": (installed(), None),
    "jemalloc of Debian": (installed(DEBIAN + "libjemalloc.so.2"), DEBIAN + "libjemalloc.so.2"),
    "tcmalloc of openEuler": (installed(RHEL + "libtcmalloc.so.4"), RHEL + "libtcmalloc.so.4"),
    "both": (installed(DEBIAN + "libtcmalloc.so.4", RHEL + "libjemalloc.so.2"), RHEL + "libjemalloc.so.2"),
    "that of another architecture": (installed("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"), None),
}
V1_CPUSET, VENDOR, PRODUCT = GROUPS + "cpuset/cpuset.effective_cpus", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"
LXCFS = "lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\nlxcfs /sys/devices/system/cpu/online fuse.lxcfs rw 0 0"
PARTITION = {GROUPS + "rt.slice/cpuset.cpus.partition": "root", GROUPS + "rt.slice/cpuset.cpus.effective": "6-7", V2: "cpuset"}


def seen(comm="systemd", online="0-7", allowed=None, **files):
    """Return files of a host; ``files`` by their names in the root cpuset."""
    status = {"/proc/1/status": "Cpus_allowed_list:\t" + allowed} if allowed else {}
    files = {GROUPS + "cpuset.cpus." + name: text for name, text in files.items()}
    return {**files, **cpu(online=online), "/proc/1/comm": comm, **status}


def container(why):
    return {"kind": "container", "why": why}


def guest(product):
    return {"kind": "virtual machine", "why": "its firmware calls it " + product}


SURROUNDINGS = {
    # None for a machine
    "a machine": (seen(effective="0-7", allowed="0-31"), None),
    "a manager's CPUAffinity": (seen(effective="0-7", allowed="0-3"), None),
    "a partition of the machine": ({**seen(effective="0-5"), **PARTITION}, None),
    "isolated CPUs": (seen(effective="0-5", isolated="6-7"), None),
    "an image": ({**cpu(online="0-7"), "/.dockerenv": ""}, None),
    "another PID 1": (seen("python3"), container("PID 1 is python3, not systemd")),
    "a mark of an engine": ({**seen(), "/run/.containerenv": ""}, container("/run/.containerenv exists")),
    "lxcfs": ({**seen(), "/proc/mounts": LXCFS}, container("lxcfs is mounted over files of /proc or /sys")),
    "virtual CPUs": (seen(effective="24-31"), container("the root cpuset has CPUs 24-31, but CPUs 0-7 are online")),
    "virtual CPUs, v1": ({**seen(), V1_CPUSET: "4-11"}, container("the root cpuset has CPUs 4-11, but CPUs 0-7 are online")),
    "--cpuset-cpus": (seen(effective="2-3"), container("the root cpuset has CPUs 2-3, but CPUs 0-7 are online")),
    "PID 1 elsewhere": (seen(allowed="24-31"), container("PID 1 may use CPUs 24-31, but CPUs 0-7 are online")),
    "a guest": ({**seen(), VENDOR: "QEMU"}, guest("QEMU")),
    "an instance": ({**seen(), VENDOR: "Amazon EC2", PRODUCT: "p5.48xlarge"}, guest("Amazon EC2 p5.48xlarge")),
    "a metal instance": ({**seen(), VENDOR: "Amazon EC2", PRODUCT: "g5g.metal"}, None),
    "nothing known": (seen(online="", allowed="0-7"), None),
}
OF_CPUSETS, INVALID = {V2: "cpuset cpu"}, "isolated invalid (Cpu list in cpuset.cpus not exclusive)"


def booted(words, **files):
    return {"/proc/cmdline": "root=/dev/sda2 " + words, **cpu(possible="0-15", **files)}


def group(name, partition, cpus="4-7", effective="4-7"):
    files = {"cpuset.cpus.partition": partition, "cpuset.cpus": cpus, "cpuset.cpus.effective": effective}
    return {f"{GROUPS}{name}/{file}": text for file, text in files.items()}


def partition(name, kind="isolated", valid=True, cpus="4-7"):
    return {"partitions": [{"group": name, "kind": kind, "valid": valid, "cpus": cpus}]}


ISOLATED = {
    "nothing": (booted("quiet"), {}),
    "no files": ({}, {}),
    "isolcpus": (booted("isolcpus=2-5,8"), {"isolcpus": "2-5,8", "flags": ["domain"]}),
    "isolcpus with flags": (booted("isolcpus=nohz,managed_irq,2-5"), {"isolcpus": "2-5", "flags": ["managed_irq", "nohz"]}),
    "isolcpus of all but the first": (booted("isolcpus=domain,1-N"), {"isolcpus": "1-15", "flags": ["domain"]}),
    "every second CPU": (booted("rcu_nocbs=0-7:1/2"), {"rcu_nocbs": "0,2,4,6"}),
    "all": (booted("rcu_nocbs=all irqaffinity=0-1"), {"rcu_nocbs": "0-15", "irqaffinity": "0-1"}),
    "CPUs that are not there": (booted("irqaffinity=14-99"), {"irqaffinity": "14-15"}),
    "the last one counts": (booted("irqaffinity=0 irqaffinity=1"), {"irqaffinity": "1"}),
    "a parameter in quotes": (booted('"isolcpus=2-3"'), {"isolcpus": "2-3", "flags": ["domain"]}),
    "a value in quotes": (booted('isolcpus="nohz,2-3" quiet'), {"isolcpus": "2-3", "flags": ["nohz"]}),
    "a blank in quotes": (booted('a="b isolcpus=2-3" "c irqaffinity=1'), {}),
    "a parameter of another name": (booted("xisolcpus=1 my.nohz_full=1"), {}),
    "nohz_full as the kernel has it": (booted("nohz_full=0-15", nohz_full="1-15"), {"nohz_full": "1-15"}),
    "nohz_full that the kernel did not take": (booted("nohz_full=0-15", nohz_full="(null)"), {}),
    "nohz_full of a record without the file": (booted("nohz_full=2-3"), {"nohz_full": "2-3"}),
    "members": ({**OF_CPUSETS, **group("system.slice", "member")}, {}),
    "an isolated partition": ({**OF_CPUSETS, **group("kubepods", "isolated")}, partition("kubepods")),
    "a partition of root, cut": ({**OF_CPUSETS, **group("user.slice", "root", "4-9")}, partition("user.slice", "root")),
    "one that is not granted": ({**OF_CPUSETS, **group("user.slice", INVALID, "4-9")}, partition("user.slice", valid=False, cpus="4-9")),
    "a slice of an NPU": ({**OF_CPUSETS, **group("npu.slice/npu-0.slice", "isolated")}, partition("npu.slice/npu-0.slice")),
    "two of them": (
        {**OF_CPUSETS, **group("npu.slice/npu-0.slice", "isolated"), **group("kubepods", "isolated")},
        {"partitions": partition("kubepods")["partitions"] + partition("npu.slice/npu-0.slice")["partitions"]},
    ),
    "further down": ({**OF_CPUSETS, **group("system.slice/a.service", "isolated")}, {}),
    "a word of a newer kernel": ({**OF_CPUSETS, **group("user.slice", "\x1b[2J")}, {}),
    "cgroup v1": (group("user.slice", "isolated"), {}),
}


def processors(count, threads=1, cache=None, cluster=None, online=None):
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
            files[folder + "/cache/index1/level"] = 3
            files[folder + "/cache/index1/shared_cpu_list"] = block(cpu, cache)
    return files


CORES = [
    # story, files, cores of several threads, caches
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
]


def online(host):
    return set(expand(host.read(CPU + "/online") or ""))


def machine_facts(host):
    facts = machine.machine(host)
    return dict(facts, sets_cpus=machine.sets_cpus(facts))


def isolation_and_problems(host):
    problems = []
    return isolation(host, problems), problems


READERS = {
    "cpus": (cpus.cpus, CPUS),
    "cores": (cpus.cpus, {story: (files, {"siblings": cores, "caches": caches}) for story, files, cores, caches in CORES}),
    "NUMA nodes": (lambda host: cpus.nodes(host, online(host)), NODES),
    "accelerators": (pci.accelerators, ACCELERATORS),
    "machine": (machine_facts, MACHINES),
    "allocator": (machine.allocator, ALLOCATORS),
    "surroundings": (lambda host: surroundings(host, online(host)), SURROUNDINGS),
    "isolation": (isolation_and_problems, {story: (files, (parameters, [])) for story, (files, parameters) in ISOLATED.items()}),
}
ROWS = [
    pytest.param(reader, *row, name in ("cpus", "cores", "machine"), id="%s: %s" % (name, story))
    for name, (reader, rows) in READERS.items()
    for story, row in rows.items()
]


@pytest.mark.parametrize("reader, files, expected, partly", ROWS)
def test_what_a_host_s_files_tell(tree, reader, files, expected, partly):
    facts = reader(tree.write(files))
    assert ({name: facts[name] for name in expected} if partly else facts) == expected


def test_a_broken_file_is_named(tree):
    host = tree.write({CPU + "/online": "0-7", CPU + "/cpu0/topology/thread_siblings_list": "0;4"})
    with pytest.raises(ValueError, match="^" + re.escape(CPU + "/cpu0/topology/thread_siblings_list: '0;4'")):
        cpus.cpus(host)


def test_a_file_is_read_once_for_each_group_and_not_for_each_cpu(tree):
    tree.write(processors(16, threads=2, cache=8, cluster=4))

    class Counting(Host):
        paths = []

        def read(self, path):
            self.paths.append(path)
            return super().read(path)

    cpus.cpus(Counting(tree.root))
    folders = [re.search(r"cpu(\d+)/(topology/(?:thread|cluster)|cache/index1/shared)", path) for path in Counting.paths]
    read = {kind: [int(match.group(1)) for match in folders if match and match.group(2).endswith(kind)] for kind in ("thread", "shared")}
    assert read == {"thread": list(range(0, 16, 2)), "shared": [0, 8]}


def test_all_names_of_a_machine_have_one_identity(tree):
    assert identity(tree.host) is None
    tree.write({"/etc/machine-id": "b08dfa6083e7567a1921a715000001fb"})
    of_image = identity(tree.host)
    tree.write({"/proc/sys/kernel/random/boot_id": "1a2b3c4d-0000-4000-8000-000000000001"})
    assert identity(tree.host) not in (None, of_image), "machines from one image have one machine id"


def test_a_kernel_without_nohz_full_ignores_it(tmp_path):
    host = ModelledSystemd(str(tmp_path))
    for path, text in (("/proc/cmdline", "nohz_full=2-3 isolcpus=2"), (CPU + "/possible", "0-15")):
        host.put(path, text)
    assert isolation(host, []) == {"flags": ["domain"], "isolcpus": "2"}


@pytest.mark.parametrize("word", ["isolcpus=a-b", "irqaffinity=3-1", "irqaffinity=00ff", "rcu_nocbs=,", "isolcpus=0-99999999"])
def test_a_value_that_names_no_cpus_leaves_the_others(tree, word):
    problems, others = [], "nohz_full=2-3" + (" irqaffinity=0" if word.startswith("isolcpus") else " isolcpus=2")
    files = {**booted(f"{others} {word}"), **OF_CPUSETS, **group("kubepods", "isolated")}
    facts = isolation(tree.write(files), problems)
    expected = {"irqaffinity": "0"} if word.startswith("isolcpus") else {"isolcpus": "2", "flags": ["domain"]}
    assert facts == {"nohz_full": "2-3", **expected, **partition("kubepods")}
    assert len(problems) == 1 and f"{word.partition('=')[0]} of /proc/cmdline" in problems[0]


def test_a_partition_without_a_cpulist_leaves_the_others(tree):
    problems, files = [], {**OF_CPUSETS, **group("a.slice", "isolated", effective="x"), **group("b.slice", "isolated")}
    assert isolation(tree.write(files), problems) == partition("b.slice") and "a.slice" in problems[0]


def test_many_groups_are_not_all_read(tree):
    files = OF_CPUSETS.copy()
    for number in range(100):
        files.update(group(f"box{number:03}", "isolated"))
    assert len(isolation(tree.write(files), [])["partitions"]) == 64


BUS = "/sys/bus/pci/devices/"
NIC, DISK, SAS, OFF, BRIDGE, NPU, VIRTIO = ("0000:7d:00.%d" % number for number in range(7))


def with_interrupts(tree, pci, pci_class, driver, masks, names=()):
    """Write a PCI function with an interrupt for each mask, a vector that nobody requested for None, and empty folders by ``names``."""
    first = 100 * (int(pci[-1]) + 1)
    files = {"class": pci_class, "numa_node": "0", "uevent": "DRIVER=%s\nPCI_ID=1" % driver, **{name + "/uevent": "" for name in names}}
    files.update({"msi_irqs/%d" % (first + place): "msix" for place in range(len(masks))})
    tree.write({BUS + pci + "/" + name: text for name, text in files.items()})
    requested = {first + place: mask for place, mask in enumerate(masks) if mask is not None}
    tree.write({"/proc/irq/%d/smp_affinity_list" % irq: mask for irq, mask in requested.items()})
    return ["%d: 0 0 ITS-MSI 1 Edge %s-%d" % (irq, driver, irq) for irq in requested]


def test_devices_are_counted_by_where_their_interrupts_may_run(tree):
    lines = with_interrupts(tree, NIC, "0x020000", "hns3", ["0-3", "0-3", "0", "1", "1", "2", None, "4-7"], ["net/enp1"])
    lines += with_interrupts(tree, DISK, "0x010802", "nvme", ["5"], ["nvme/nvme3"])
    lines += with_interrupts(tree, SAS, "0x010700", "hisi_sas", ["0-7"])
    lines += with_interrupts(tree, OFF, "0x020000", "hinic", [None, None], ["net/enp2"])
    lines += with_interrupts(tree, BRIDGE, "0x060400", "pcieport", ["0-7"])
    lines += with_interrupts(tree, NPU, "0x120000", "devdrv", ["0-7"])
    lines += with_interrupts(tree, VIRTIO, "0x010000", "virtio-pci", ["6"], ["virtio0/block/vda"])
    tree.write({"/proc/interrupts": "   CPU0 CPU1\n" + "\n".join(lines) + "\n"})
    assert neighbours(tree.host) == [
        {"pci": NIC, "name": "enp1", "driver": "hns3", "numa": 0, "irqs": 7, "shared": {"0-3": 2, "4-7": 1}, "single": ["0-2", "1"]},
        {"pci": DISK, "name": "nvme3", "driver": "nvme", "numa": 0, "irqs": 1, "shared": {}, "single": ["5"]},
        {"pci": SAS, "name": SAS, "driver": "hisi_sas", "numa": 0, "irqs": 1, "shared": {"0-7": 1}, "single": []},
        {"pci": VIRTIO, "name": "vda", "driver": "virtio-pci", "numa": 0, "irqs": 1, "shared": {}, "single": ["6"]},
    ]
