# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd, its cgroups, irqbalance and kubelet as files show them."""

from __future__ import annotations

import json

from .machine import Machine
from .proc import DAEMON_PIDS
from .tree import Tree

UNITS = "/usr/lib/systemd/system"
ENABLED = "/etc/systemd/system"
CGROUPS = "/sys/fs/cgroup"
ENVIRONMENT = {"rhel": ("/etc/sysconfig/irqbalance", "IRQBALANCE_ARGS"), "debian": ("/etc/default/irqbalance", "OPTIONS")}
CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"


def write(tree: Tree, machine: Machine) -> None:
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
    inner = " ".join(
        "%s:map[%s]" % (pod, " ".join("%s:%s" % (name, pods[pod][name]) for name in sorted(pods[pod]))) for pod in sorted(pods)
    )
    text = (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)%s DefaultCPUSet:(string)%s "
        "Entries:(map[string]map[string]string)map[%s] Checksum:(checksum.Checksum)0}"
        % (state["policyName"], state["defaultCpuSet"], inner)
    )
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _write_cgroups(tree: Tree, machine: Machine, services: list[str]) -> None:
    """Write the cgroup mounts: v2 alone, v1 alone, or hybrid (v1 controllers, and v2 for systemd's own book-keeping)."""
    mounts, systemd_hierarchies = [], []
    if machine.cgroup == "v2":
        mounts.append("cgroup2 %s cgroup2 rw,nosuid,nodev,noexec,relatime 0 0" % CGROUPS)
        systemd_hierarchies.append(CGROUPS)
        tree.write(CGROUPS + "/cgroup.controllers", CONTROLLERS)
        tree.write(CGROUPS + "/cgroup.subtree_control", "cpuset cpu io memory pids")
        tree.write(CGROUPS + "/cpuset.cpus.effective", machine.online_list)
        tree.write(CGROUPS + "/cpuset.mems.effective", machine.memory_nodes)
    else:
        mounts.append("tmpfs %s tmpfs ro,nosuid,nodev,noexec,mode=755 0 0" % CGROUPS)
        mounts.append("cgroup %s/systemd cgroup rw,nosuid,nodev,noexec,relatime,xattr,name=systemd 0 0" % CGROUPS)
        mounts.append("cgroup %s/cpuset cgroup rw,nosuid,nodev,noexec,relatime,cpuset 0 0" % CGROUPS)
        systemd_hierarchies.append(CGROUPS + "/systemd")
        tree.write(CGROUPS + "/cpuset/cpuset.cpus", machine.online_list)
        tree.write(CGROUPS + "/cpuset/cpuset.mems", machine.memory_nodes)
        if machine.cgroup == "hybrid":
            mounts.append("cgroup2 %s/unified cgroup2 rw,nosuid,nodev,noexec,relatime 0 0" % CGROUPS)
            systemd_hierarchies.append(CGROUPS + "/unified")
            tree.text(CGROUPS + "/unified/cgroup.controllers", "\n")
    tree.write("/proc/mounts", "\n".join(mounts))
    for hierarchy in systemd_hierarchies:
        for group in ("init.scope", "system.slice", "user.slice"):
            tree.folder("%s/%s" % (hierarchy, group))
        for service in services:
            folder = "%s/system.slice/%s.service" % (hierarchy, service)
            tree.write(folder + "/cgroup.procs", DAEMON_PIDS[service])
            if not hierarchy.endswith("/systemd"):
                tree.write(folder + "/cgroup.events", "populated 1\nfrozen 0")
