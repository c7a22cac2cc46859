# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/proc entries of kernel threads and processes, the files that name the machine, its kernel and its distribution; systemd, its cgroups,
irqbalance and kubelet as files show them."""

from __future__ import annotations

import json
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
UNITS = "/usr/lib/systemd/system"
ENABLED = "/etc/systemd/system"
CGROUPS = "/sys/fs/cgroup"
ENVIRONMENT = {"rhel": ("/etc/sysconfig/irqbalance", "IRQBALANCE_ARGS"), "debian": ("/etc/default/irqbalance", "OPTIONS")}
CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"


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
    threads = {SQ_THREAD_PID + chip.phy: "dev%d_sq_task" % chip.phy for chip in machine.chips_on_bus}
    threads.update(dict.fromkeys(POLL_THREAD_PIDS if machine.family == "a5" else (), "uvb_poll_window_thread"))
    for pid, name in threads.items():
        _write_task(tree, machine, "/proc/%d" % pid, name, everywhere, "/")
        tree.text("/proc/%d/cmdline" % pid)
        tree.write("/proc/%d/stat" % pid, "%d (%s) S 2 0 0 0 -1 %d" % (pid, name[:15], KERNEL_THREAD))
    for process in machine.processes:
        _write_worker(tree, machine, process)
    _write_systemd(tree, machine)


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


def _write_systemd(tree: Tree, machine: Machine) -> None:
    tree.text("/usr/lib/systemd/libsystemd-shared-%d.so" % machine.systemd)
    for target, words in (("multi-user", "Multi-User System"), ("timers", "Timer Units"), ("sysinit", "System Initialization")):
        tree.text("%s/%s.target" % (UNITS, target), "[Unit]\nDescription=%s\n" % words)
    tree.text("/usr/bin/python3.9", mode=0o755)
    tree.link("/usr/bin/python3", "/usr/bin/python3.9")
    for name in machine.units:
        tree.text("%s/%s" % (UNITS, name), _service("A server of models", ["ExecStart=/usr/bin/serve"]))
    tree.folder(ENABLED)
    tree.folder("/run/systemd/system")
    services = []
    if machine.irqbalance["installed"]:
        _write_irqbalance(tree, machine)
        services += ["irqbalance"] if machine.irqbalance["active"] else []
    if machine.kubelet:
        _write_kubelet(tree, machine)
        services.append("kubelet")
    for service in services:
        tree.folder(ENABLED + "/multi-user.target.wants")
        tree.link("%s/multi-user.target.wants/%s.service" % (ENABLED, service), "%s/%s.service" % (UNITS, service))
    _write_cgroups(tree, machine, services)


def _service(description: str, lines: list[str]) -> str:
    return "\n".join(["[Unit]", "Description=" + description, "", "[Service]", *lines, "", "[Install]", "WantedBy=multi-user.target", ""])


def _write_irqbalance(tree: Tree, machine: Machine) -> None:
    file, key = ENVIRONMENT[machine.irqbalance["unit"]]
    lines = ["EnvironmentFile=-" + file, "ExecStart=/usr/sbin/irqbalance --foreground $" + key]
    tree.text(UNITS + "/irqbalance.service", _service("irqbalance daemon", lines))
    tree.text(file, '# Options for irqbalance.\n%s="%s"\n' % (key, machine.irqbalance["options"]))
    tree.text("/usr/sbin/irqbalance", mode=0o755)


def _write_kubelet(tree: Tree, machine: Machine) -> None:
    kubelet = machine.kubelet
    settings = {
        "cpuManagerPolicy": kubelet.get("policy", "none"),
        "topologyManagerPolicy": kubelet.get("topology_policy", "none"),
        "reservedSystemCPUs": kubelet.get("reserved"),
    }
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n"
    lines = ['%s: "%s"\n' % (key, value) for key, value in settings.items() if value is not None]
    tree.text("/var/lib/kubelet/config.yaml", head + "".join(lines), mode=0o600)
    tree.text(UNITS + "/kubelet.service", _service("kubelet", ["ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml"]))
    if kubelet.get("version"):
        tree.text("/usr/bin/kubelet", "#!/bin/sh\necho Kubernetes v%s\n" % kubelet["version"], mode=0o755)
    state = {"policyName": settings["cpuManagerPolicy"], "defaultCpuSet": kubelet.get("default_cpus", "")}
    if kubelet.get("exclusive"):
        state["entries"] = kubelet["exclusive"]
    state["checksum"] = _checksum(state)
    tree.text("/var/lib/kubelet/cpu_manager_state", json.dumps(state, separators=(",", ":")), mode=0o600)


def _checksum(state: dict) -> int:
    """Return kubelet's checksum of the state: FNV-1a over Go's dump of the structure (kubernetes pkg/kubelet/cm/cpumanager/state)."""
    pods = state.get("entries", {})
    inner = " ".join("%s:map[%s]" % (pod, " ".join("%s:%s" % pair for pair in sorted(sets.items()))) for pod, sets in sorted(pods.items()))
    text = "(*state.CPUManagerCheckpoint){PolicyName:(string)%s DefaultCPUSet:(string)%s " % (state["policyName"], state["defaultCpuSet"])
    text += "Entries:(map[string]map[string]string)map[%s] Checksum:(checksum.Checksum)0}" % inner
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _write_cgroups(tree: Tree, machine: Machine, services: list[str]) -> None:
    """Write the cgroup mounts: v2 alone, v1 alone, or hybrid (v1 controllers, and v2 for systemd's own book-keeping)."""
    unified = CGROUPS + "/unified" * (machine.cgroup == "hybrid")
    mounts, systemd_hierarchies = [], []
    if machine.cgroup == "v2":
        tree.write(CGROUPS + "/cgroup.controllers", CONTROLLERS)
        tree.write(CGROUPS + "/cgroup.subtree_control", "cpuset cpu io memory pids")
        tree.write(CGROUPS + "/cpuset.cpus.effective", machine.online_list)
        tree.write(CGROUPS + "/cpuset.mems.effective", machine.memory_nodes)
    else:
        mounts.append("tmpfs %s tmpfs ro,nosuid,nodev,noexec,mode=755 0 0" % CGROUPS)
        for name, option in (("systemd", "xattr,name=systemd"), ("cpuset", "cpuset")):
            mounts.append("cgroup %s/%s cgroup rw,nosuid,nodev,noexec,relatime,%s 0 0" % (CGROUPS, name, option))
        systemd_hierarchies.append(CGROUPS + "/systemd")
        tree.write(CGROUPS + "/cpuset/cpuset.cpus", machine.online_list)
        tree.write(CGROUPS + "/cpuset/cpuset.mems", machine.memory_nodes)
    if machine.cgroup == "hybrid":
        tree.text(unified + "/cgroup.controllers", "\n")
    if machine.cgroup != "v1":
        mounts.append("cgroup2 %s cgroup2 rw,nosuid,nodev,noexec,relatime 0 0" % unified)
        systemd_hierarchies.append(unified)
    tree.write("/proc/mounts", "\n".join(mounts))
    for hierarchy in systemd_hierarchies:
        for group in ("init.scope", "system.slice", "user.slice"):
            tree.folder("%s/%s" % (hierarchy, group))
        for service in services:
            folder = "%s/system.slice/%s.service" % (hierarchy, service)
            tree.write(folder + "/cgroup.procs", DAEMON_PIDS[service])
            if not hierarchy.endswith("/systemd"):
                tree.write(folder + "/cgroup.events", "populated 1\nfrozen 0")
