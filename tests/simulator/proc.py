# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc entries of kernel threads and processes, and the files that name the machine, its kernel and its distribution."""

from __future__ import annotations

import os

from .machine import Machine, Process
from .tree import Tree

SQ_THREAD_PID = 1500
POLL_THREAD_PIDS = (1600, 1601)
KERNEL_THREAD = 0x00208040
"""The flags of a kernel thread: PF_KTHREAD, PF_NOFREEZE and PF_FORKNOEXEC."""
PAGES_OF_MIB = 256
FIRST_DEVICE_FD = 40
DAEMON_PIDS = {"systemd": 1, "irqbalance": 901, "kubelet": 902}


def write(tree: Tree, machine: Machine) -> None:
    tree.write("/proc/sys/kernel/osrelease", machine.kernel)
    tree.write("/proc/sys/kernel/arch", machine.architecture)
    tree.write("/proc/sys/kernel/ostype", "Linux")
    tree.write("/proc/version", "Linux version %s (simulated host)" % machine.kernel)
    isolated = " isolcpus=%s" % machine.isolated if machine.isolated else ""
    tree.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz-%s root=/dev/sda2 ro%s" % (machine.kernel, isolated))
    tree.write("/sys/class/dmi/id/product_name", machine.product)
    tree.write("/sys/class/dmi/id/sys_vendor", machine.vendor)
    tree.text("/etc/os-release", 'NAME="%s"\nID="%s"\nVERSION_ID="%s"\n' % (machine.os_id, machine.os_id, machine.os_version))
    everywhere = machine.online_list
    running = {"systemd": True, "irqbalance": machine.irqbalance["active"], "kubelet": machine.kubelet}
    for name, runs in running.items():
        if runs:
            folder = "/proc/%d" % DAEMON_PIDS[name]
            cgroup = "/init.scope" if name == "systemd" else "/system.slice/%s.service" % name
            _write_task(tree, machine, folder, name, everywhere, cgroup)
            tree.text(folder + "/cmdline", name + "\0")
    functions = {function.bdf for function in machine.functions}
    for chip in machine.chips:
        if chip.bdf in functions:
            folder = "/proc/%d" % (SQ_THREAD_PID + chip.phy)
            _write_task(tree, machine, folder, "dev%d_sq_task" % chip.phy, everywhere, "/")
            tree.text(folder + "/cmdline")
            tree.write(folder + "/stat", "%d (dev%d_sq_task) S 2 0 0 0 -1 %d" % (SQ_THREAD_PID + chip.phy, chip.phy, KERNEL_THREAD))
    if machine.family == "a5":
        for pid in POLL_THREAD_PIDS:
            _write_task(tree, machine, "/proc/%d" % pid, "uvb_poll_window_thread", everywhere, "/")
            tree.text("/proc/%d/cmdline" % pid)
            tree.write("/proc/%d/stat" % pid, "%d (uvb_poll_window) S 2 0 0 0 -1 %d" % (pid, KERNEL_THREAD))
    for process in machine.processes:
        _write_worker(tree, machine, process)


def _write_worker(tree: Tree, machine: Machine, process: Process) -> None:
    folder = "/proc/%d" % process.pid
    cgroup = "/system.slice/%s.service" % process.comm
    _write_task(tree, machine, folder, process.comm, process.cpus, cgroup, process.mems)
    tree.text(folder + "/cmdline", process.comm + "\0serve\0")
    counters = " ".join(["0"] * 8)
    tree.write(folder + "/stat", "%d (%s) S 1 1 1 0 -1 4194560 %s 20 0 3 0 %d 0" % (process.pid, process.comm[:15], counters, process.pid))
    for offset, name in enumerate((process.comm, *process.threads)):
        _write_task(tree, machine, "%s/task/%d" % (folder, process.pid + offset), name, process.cpus, cgroup, process.mems)
    pages = " ".join("N%d=%d" % (node, mib * PAGES_OF_MIB) for node, mib in process.mib.items())
    total = sum(process.mib.values()) * PAGES_OF_MIB
    tree.write(folder + "/numa_maps", "7f2a00000000 default anon=%d %s kernelpagesize_kB=4" % (total, pages))
    tree.folder(folder + "/fd")
    opened = FIRST_DEVICE_FD + len(os.listdir(tree.root + folder + "/fd"))  # a process can use several chips
    for number, file in enumerate(process.files, opened):
        os.symlink(file, "%s%s/fd/%d" % (tree.root, folder, number))


def _write_task(tree: Tree, machine: Machine, folder: str, name: str, cpus: str, cgroup: str, mems: str | None = None) -> None:
    pid = int(folder.rpartition("/")[2])
    status = "Name:\t%s\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\n" % (name[:15], pid, pid)
    status += "Cpus_allowed:\t%s\nCpus_allowed_list:\t%s\n" % (machine.mask(cpus), cpus)
    status += "Mems_allowed_list:\t%s" % (machine.memory_nodes if mems is None else mems)
    tree.write(folder + "/comm", name[:15], volatile=True)
    tree.write(folder + "/status", status, volatile=True)
    tree.write(folder + "/cgroup", "0::" + cgroup)
