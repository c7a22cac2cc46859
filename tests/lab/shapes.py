# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's machines, and the QEMU arguments that make them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import subprocess
from dataclasses import dataclass

from .image import ARCHITECTURE, FIRMWARE, INITRD, KERNEL, QEMU, SUITE

VECTORS = 80
"""Interrupt vectors of each NPU: more than its driver requests, as on a real one, and enough to fill a CPU from three of them."""
NEAR, QUEUES = "near", 4
"""What a shape's network function leads to, and how many queues that has in each direction where this machine can make several."""

# Five levels of page tables, checks of accesses to user memory, and instructions that are quick on a CPU and slow where they are emulated:
# vectors, and copies of one byte after the other.
SLOW = "la57=off,smap=off,smep=off,umip=off,pku=off,pks=off,avx=off,avx2=off,xsave=off,erms=off,fsrm=off"
if SUITE in ("trixie", "testing"):
    SLOW += ",cx16=off"  # kernel 6.12 panics at an emulated cmpxchg16b now and then

IDLE = ("systemd-sysusers", "systemd-random-seed", "systemd-update-utmp", "systemd-update-utmp-runlevel")
"""Units of a boot that nothing here needs; each takes an emulated guest a second or more."""
CGROUP = {
    "v2": "systemd.unified_cgroup_hierarchy=1",
    "hybrid": "systemd.unified_cgroup_hierarchy=0",
    "v1": "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1",
}


@dataclass(frozen=True)
class Node:
    """A NUMA node: its memory in MiB, its NPUs, and whether its CPUs are plugged in.

    Where they are not, the kernel's node ids have a gap. On aarch64 the kernel counts such nodes last, and lists them as empty.
    """

    memory: int = 0
    npus: int = 0
    present: bool = True


@dataclass(frozen=True)
class Shape:
    """A machine. Each node is a die with ``cores`` cores of ``threads`` threads; ``per_socket`` nodes share a socket.

    ``cgroup`` is v2, hybrid or v1; ``nvme`` and ``nic`` are the nodes of a disk and of a network function, which nothing answers;
    ``words`` are more of the kernel command line; ``emulation`` is how QEMU runs its CPUs where KVM does not work.
    """

    name: str
    about: str
    family: str
    nodes: tuple[Node, ...]
    cores: int
    threads: int = 1
    per_socket: int = 1
    distances: tuple[tuple[int, ...], ...] = ()
    nvme: int | None = None
    nic: int | None = None
    cgroup: str = "v2"
    words: str = ""
    emulation: str = "thread=single"

    @property
    def saveable(self):
        """QEMU can't save the state of an NVMe disk."""
        return self.nvme is None

    @property
    def per_node(self):
        return self.cores * self.threads

    @property
    def cpus(self):
        return sum(node.present for node in self.nodes) * self.per_node

    def arguments(self):
        """The QEMU arguments that shape the machine; disk, network and control are not part of it."""
        return [*self._machine(), *self._memory(), *self._devices(), *self._kernel()]

    def _machine(self):
        sockets = len(self.nodes) // self.per_socket
        # One thread for all CPUs: no slower than one each on a host with few. With one each a boot in twenty stops short on x86, and one of
        # aarch64 does not end within ten minutes.
        if ARCHITECTURE == "arm64":
            # ACPI, and with it the NUMA nodes of PCI devices, needs the firmware
            machine = ["-machine", "virt,gic-version=3", "-bios", str(FIRMWARE), "-accel", f"tcg,{self.emulation}", "-cpu", "neoverse-n1"]
            split = f"clusters={self.per_socket}"
        else:
            # The default vendor of 'max' hides SMT and cache sharing from the guest.
            accelerator, cpu = ("kvm", "host") if kvm_works() else (f"tcg,{self.emulation}", f"max,vendor=GenuineIntel,{SLOW}")
            machine = ["-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on", "-accel", accelerator, "-cpu", cpu]
            split = f"dies={self.per_socket}"
        first_gap = next((place for place, number in enumerate(self._order()) if not self.nodes[number].present), len(self.nodes))
        smp = f"cpus={first_gap * self.per_node},maxcpus={len(self.nodes) * self.per_node}"
        smp += f",sockets={sockets},{split},cores={self.cores},threads={self.threads}"
        plugged = []
        for number in self._order()[first_gap:]:
            socket, die = divmod(number, self.per_socket)
            for core, thread in itertools.product(range(self.cores), range(self.threads) if self.nodes[number].present else ()):
                place = f"socket-id={socket},die-id={die},core-id={core},thread-id={thread}"
                plugged += ["-device", f"{cpu.partition(',')[0]}-x86_64-cpu,{place}"]
        return [*machine, "-smp", smp, *plugged]

    def _order(self):
        """The nodes in the order of their CPUs. Those that are not plugged in come last where QEMU cannot plug in one after them."""
        return sorted(range(len(self.nodes)), key=lambda number: ARCHITECTURE == "arm64" and not self.nodes[number].present)

    def _memory(self):
        arguments = []
        for number, node in enumerate(self.nodes):
            first = self._order().index(number) * self.per_node
            spec = f"node,nodeid={number},cpus={first}-{first + self.per_node - 1}"
            if node.memory:
                arguments += ["-object", f"memory-backend-ram,id=mem{number},size={node.memory}M"]
                spec += f",memdev=mem{number}"
            arguments += ["-numa", spec]
        for source, row in enumerate(self.distances):
            for target, value in enumerate(row):
                arguments += ["-numa", f"dist,src={source},dst={target},val={value}"]
        return [*arguments, "-m", f"{sum(node.memory for node in self.nodes)}M"]

    def _devices(self):
        """One PCI host bridge per node that has devices, one root port per device."""
        arguments, ports = [], 0
        for number, node in enumerate(self.nodes):
            devices = [f"virtio-serial-pci,vectors={VECTORS},disable-legacy=on"] * node.npus
            if self.nvme == number:
                arguments += ["-blockdev", "driver=null-co,node-name=nvme0,size=67108864,read-zeroes=on"]
                devices.append("nvme,serial=lab,drive=nvme0")
            if self.nic == number:
                devices.append(f"virtio-net-pci,netdev={NEAR},mq=on,disable-legacy=on,romfile=")
            if devices:
                bus = 32 + number * (208 // len(self.nodes))
                arguments += ["-device", f"pxb-pcie,id=px{number},bus=pcie.0,numa_node={number},bus_nr={bus}"]
            for device in devices:
                ports += 1
                arguments += ["-device", f"pcie-root-port,id=rp{ports},bus=px{number},chassis={ports},io-reserve=0"]
                arguments += ["-device", f"{device},bus=rp{ports}"]
        return arguments

    def _kernel(self):
        words = ["root=/dev/vda rw quiet mitigations=off panic=-1", CGROUP[self.cgroup]]
        words += ["console=ttyAMA0" if ARCHITECTURE == "arm64" else "console=ttyS0"]
        # Interrupt remapping only: with DMA remapping a saved guest does not load, because the BIOS set up the disk's buffer outside of it.
        # On a busy host the boot's look at the timer finds too few ticks, and the kernel panics.
        words += ["intel_iommu=off no_timer_check"] if ARCHITECTURE == "amd64" else []
        # Memory is not cleared twice.
        words += ["init_on_alloc=0 randomize_kstack_offset=off"]
        # On a busy host nothing in the guest is stuck that takes long.
        words += ["nowatchdog systemd.service_watchdogs=0 rcupdate.rcu_cpu_stall_suppress=1"]
        words += [f"systemd.mask={unit}.service" for unit in IDLE]
        words += [f"nr_cpus={self.cpus}", "modprobe.blacklist=kvm_amd,kvm_intel"]
        words += [f"davinci_mock.device_id={'0xd803' if self.family == 'a3' else '0xd802'}", self.words]
        return ["-kernel", str(KERNEL), "-initrd", str(INITRD), "-append", " ".join(words)]


A2 = Shape("a2", "A2-like: 4 nodes of 6 CPUs, two threads a core, one NPU on each node", "a2", (Node(320, 1),) * 4, cores=3, threads=2)
A2 = dataclasses.replace(A2, per_socket=2, distances=((10, 16, 32, 33), (16, 10, 25, 32), (32, 25, 10, 16), (33, 32, 16, 10)))
A3 = Shape("a3", "A3-like: 2 nodes of 12 CPUs, two threads a core, two cards of two dies", "a3", (Node(512, 2),) * 2, cores=6, threads=2)
ODD = Shape(
    "odd",
    "three nodes of 8 CPUs with one NPU each, the last one without memory; one more between them is not plugged in",
    "a2",
    (Node(512, 1), Node(present=False), Node(512, 1), Node(0, 1)),
    cores=4,
    threads=2,
    distances=((10, 20, 32, 33), (20, 10, 25, 32), (32, 25, 10, 16), (33, 32, 16, 10)),
)
V1 = Shape("v1", "cgroup v1; 2 nodes of 6 CPUs, one NPU on each", "a2", (Node(512, 1),) * 2, cores=6, cgroup="v1")
HYBRID = dataclasses.replace(V1, name="hybrid", about="cgroup v1 and v2 side by side; 2 nodes of 6 CPUs, one NPU on each", cgroup="hybrid")
_V2 = dataclasses.replace(V1, cgroup="v2")
NVME = dataclasses.replace(
    _V2,
    name="nvme",
    about="2 nodes of 6 CPUs with one NPU each, a network function, and an NVMe disk, whose queues' interrupts the kernel manages",
    nvme=0,
    nic=0,
)
SELINUX = dataclasses.replace(_V2, name="selinux", about="SELinux; 2 nodes of 6 CPUs, one NPU on each", words="security=selinux selinux=1")
ISOLATED = dataclasses.replace(
    _V2,
    name="isolated",
    about="2 nodes of 6 CPUs, one NPU on each; the kernel command line sets CPUs apart",
    words="isolcpus=domain,managed_irq,4-5 nohz_full=4-6 irqaffinity=0-1",
)
DUO = Shape("duo", "2 nodes of 6 CPUs, two threads a core, one NPU on each", "a2", (Node(384, 1),) * 2, cores=3, threads=2)
EIGHT = Shape("eight", "2 nodes of 12 CPUs, four NPUs on each", "a2", (Node(512, 4),) * 2, cores=12)
NONE = Shape("none", "2 nodes of 2 CPUs, no accelerator", "a2", (Node(384),) * 2, cores=2)
ENGINES = Shape("engines", "2 nodes of 6 CPUs, one NPU on each, with memory for container engines", "a2", (Node(1024, 1),) * 2, cores=6)
ENGINES_V1 = dataclasses.replace(ENGINES, name="engines-v1", about="cgroup v1; otherwise as engines", cgroup="v1")
MEASURED = Shape(
    "measured",
    "2 nodes of 2 CPUs, an NPU on the second one; each CPU is a thread of QEMU, which waits for no other one",
    "a2",
    (Node(512), Node(512, 1)),
    cores=2,
    emulation="thread=multi",
)


@functools.cache
def kvm_works():
    """Whether this machine's KVM really runs a guest's kernel: it must come as far as missing its disk. /dev/kvm alone proves nothing."""
    if ARCHITECTURE != "amd64" or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    command = [QEMU, "-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256", "-display", "none", "-monitor", "none", "-no-reboot"]
    command += ["-serial", "stdio", "-kernel", str(KERNEL), "-append", "console=ttyS0 panic=-1"]
    try:
        trial = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=8, check=False)
    except subprocess.TimeoutExpired:
        return False
    return b"Unable to mount root fs" in trial.stdout
