# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work on modelled kernels that keep or forget what threads asked for."""

from __future__ import annotations

import os

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import services
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.choosing import Adopt, targets
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.work import NOTHING, Scope, Work
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import memory_of
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Result
from ansible_collections.npu.affinity.plugins.module_utils._kernel import interrupts
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import SwitchedOff
from tests.fakes.machine import Machine
from tests.fakes.workers import npu

CGROUPS = "/sys/fs/cgroup"
CPUSETS = CGROUPS + "/cpuset"
"""The hierarchy of version 1."""
NUMA_MAPS = "/proc/%d/numa_maps"
MIGRATEPAGES = "/usr/bin/migratepages"
SYSTEMD = "/usr/lib/systemd/libsystemd-shared-%d.so"
PLAN = {
    "npus": [npu(0, 0, pool="0-1", irq="0", main="1", acl="", release=""), npu(1, 4, pool="4-7", irq="4", main="5-7", acl="", release="")]
}
ID = "0123456789abcdef" * 4
DOCKER = "/system.slice/docker-%s.scope" % ID
PODMAN = "/machine.slice/libpod-%s.scope" % ID
SERVICE = "/system.slice/outside.service"
DROP_IN = services.drop_in("outside.service")
SESSION = "/user.slice/user-0.slice/session-1.scope"


class Working(Machine):
    """A machine with processes whose threads get what their cpuset grants, and with container engines.

    ``keeps``: whether the kernel remembers what threads asked for, as Linux 6.2 does. ``moves``: whether it moves the memory of a group
    that is given other nodes. ``engines`` has the sets that engines wrote down, which Podman 4 does not do (``writes_down``). An engine can
    be ``deaf``, which changes nothing, ``silent``, or one that ``refuses``.
    """

    def __init__(self, root, keeps=True, online="0-7", v1=False):
        self.v1, self.keeps, self.moves = v1, keeps, False
        self.asked, self.groups, self.space = {}, {}, {}
        self.engines, self.engine_mems, self.writes_down = {}, "", True
        self.deaf = self.silent = self.refuses = False
        Machine.__init__(self, root)
        sets = {"cpus": online, "effective_cpus": online, "effective_mems": "0-1"} if v1 else {}
        self.lay({"%s/cpuset.%s" % (CPUSETS, name): text for name, text in sets.items()})
        self.lay({CGROUPS + "/systemd/cgroup.procs": ""} if v1 else {CGROUPS + "/cgroup.controllers": "cpuset cpu"})
        self.lay({SYSTEMD % 252: "", "/sys/devices/system/cpu/possible": online, "/proc/sys/kernel/random/boot_id": "boot"})
        self.put("/proc/sys/kernel/osrelease", "6.12.0" if keeps else "5.10.0-60")

    def process(self, pid, group, threads=(None,), start=1):
        """Start a process; each thread is what it asks for, None for nothing."""
        self.put("/proc/%d/stat" % pid, "%d (worker) S " % pid + " ".join(["0"] * 18 + [str(start)]))
        self.put("/proc/%d/comm" % pid, "worker")
        inner = group if ID in group else "/"
        self.put("/proc/%d/cgroup" % pid, "4:cpuset:%s\n1:name=systemd:%s\n" % (inner, group) if self.v1 else "0::%s\n" % group)
        for number, asked in enumerate(threads):
            self.asked[pid + number] = expand(asked) if asked else None
            self.groups[pid + number] = (pid, group)
            self.put("/proc/%d/task/%d/comm" % (pid, pid + number), "worker")
            self.show(pid + number)
        procs = self.procs(group)
        self.put(procs, (self.read(procs) or "") + "\n%d\n" % pid)

    def lay(self, files):
        """Write ``{path: text}``; text None removes one."""
        for path, text in files.items():
            self.put(path, text) if text is not None else os.unlink(self.path(path))

    def procs(self, group):
        return CGROUPS + ("/systemd" if self.v1 else "") + group + "/cgroup.procs"

    def granted(self, group):
        folder = CGROUPS + group
        while not self.exists(folder + "/cpuset.cpus.effective"):
            folder = os.path.dirname(folder)
        return set(expand(self.read(folder + "/cpuset.cpus.effective")))

    def end(self, group):
        """End all processes of a group."""
        for pid in {pid for pid, other in self.groups.values() if other == group}:
            self.put("/proc/%d/stat" % pid, "")
        self.put(self.procs(group), "")

    def show(self, tid):
        pid, group = self.groups[tid]
        granted = self.granted(group)
        cpus = set(self.asked[tid] or granted) & granted or granted
        for folder in ["/proc/%d/task/%d" % (pid, tid), *(["/proc/%d" % pid] if pid == tid else [])]:
            self.put(folder + "/status", "Name:\tworker\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n" % compress(cpus))

    def cpus(self, tid):
        return self.read("/proc/%d/task/%d/status" % (self.groups[tid][0], tid)).rpartition("\t")[2]

    def set_affinity(self, tid, cpus):
        """Stand in for ``os.sched_setaffinity``."""
        self.interrupt()
        self.asked[tid] = set(cpus)
        self.show(tid)

    def confine(self, group, cpus):
        """Give a group a set; a kernel that does not keep what threads asked for forgets it."""
        around = self.granted(os.path.dirname(group))
        self.put(CGROUPS + group + "/cpuset.cpus", cpus)
        self.put(CGROUPS + group + "/cpuset.cpus.effective", compress(set(expand(cpus)) & around or around))
        if self.v1:
            self.put(CPUSETS + group + "/cpuset.cpus", cpus)
            self.put(CPUSETS + group + "/cpuset.effective_cpus", cpus)
        for tid in [tid for tid, (_pid, other) in self.groups.items() if (other + "/").startswith(group + "/")]:
            self.asked[tid] = self.asked[tid] if self.keeps else None
            self.show(tid)

    def confine_memory(self, group, nodes):
        """Give a group memory nodes."""
        self.put(CGROUPS + group + "/cpuset.mems", nodes)
        self.put(CGROUPS + group + "/cpuset.mems.effective", nodes)
        if self.v1:
            self.put(CPUSETS + group + "/cpuset.effective_mems", nodes)
        for pid in {pid for pid, other in self.groups.values() if other == group} if self.moves else ():
            for node in set(self.pages(pid)) - set(expand(nodes)):
                self.move_pages(pid, node, min(expand(nodes)))

    def pages(self, pid):
        """The MiB of a process by node."""
        return {node: round(amount) for node, amount in (memory_of(self, pid) or {}).items()} if self.exists(NUMA_MAPS % pid) else {}

    def allocate(self, pid, **mib):
        self.put(NUMA_MAPS % pid, "7f00 default anon=1" + "".join(" %s=%d" % (node, amount << 8) for node, amount in mib.items()))

    def move_pages(self, pid, source, target):
        """Move what fits into the ``space`` of the target."""
        found = self.pages(pid)
        amount = min(found[source], self.space.get(target, found[source]))
        found[source], found[target] = found[source] - amount, found.get(target, 0) + amount
        self.allocate(pid, **{"N%d" % node: mib for node, mib in found.items() if mib})

    def free(self, mib):
        """Have two memory nodes with some free memory, and the tool that moves pages."""
        nodes = {"/sys/devices/system/node/node%d/meminfo" % node: "Node %d MemFree: %d kB\n" % (node, mib << 10) for node in (0, 1)}
        self.lay({**nodes, "/sys/devices/system/node/has_memory": "0-1", MIGRATEPAGES: ""})
        os.chmod(self.path(MIGRATEPAGES), 0o755)

    @property
    def migrations(self):
        return [call.split("/")[-1] for call in self.calls if "migratepages" in call]

    def mems(self, group):
        return self.read(CGROUPS + group + "/cpuset.mems.effective") or "0-1"

    def follow(self, unit):
        nodes = self.loaded.get(unit, {}).get("AllowedMemoryNodes")
        if unit.endswith(".service") and nodes:
            self.confine_memory(self.states[unit], nodes)
        cpus = self.loaded.get(unit, {}).get("AllowedCPUs")
        if self.v1 and unit.endswith(".service"):
            return
        if unit.endswith(".service") and cpus:
            if self.read(CGROUPS + self.states[unit] + "/cpuset.cpus") != cpus:
                self.confine(self.states[unit], cpus)
        else:
            Machine.follow(self, unit)

    def run(self, argv, stdin="", timeout=None):
        if argv[0] not in ("docker", "podman", self.path(MIGRATEPAGES)):
            return Machine.run(self, argv, stdin, timeout)
        self.calls.append(" ".join(argv))
        if argv[0] == self.path(MIGRATEPAGES):
            self.move_pages(*map(int, argv[1:]))
            return Result(argv, 0, "")
        if self.silent:
            raise CommandError("'%s' did not answer within 30 s and was killed" % " ".join(argv))
        if argv[1] == "container":
            known = "".join("%s %s/%s\n" % (name, self.engines[name], self.engine_mems) for name in argv[5:] if name in self.engines)
            errors = "WARN[0000] cgroups-v1 is deprecated\n" + "".join(
                "no such container: %s\n" % name for name in set(argv[5:]) - set(self.engines)
            )
            return Result(argv, int(not set(argv[5:]) <= set(self.engines)), known + errors, errors)
        self.interrupt()
        if self.refuses:
            return Result(argv, 125, "Error response from daemon: Cannot update container: busy\n", "")
        sets = {argv[index]: argv[index + 1] for index in range(2, len(argv) - 1, 2)}
        cpus = sets.get("--cpuset-cpus", "")
        if not set(expand(cpus)) <= self.online:
            return Result(argv, 1, "Requested CPUs are not available")
        if cpus and not self.deaf:
            self.engines[argv[-1]] = cpus if self.writes_down else self.engines[argv[-1]]
            self.confine(DOCKER if argv[0] == "docker" else PODMAN, cpus)
        if sets.get("--cpuset-mems") and not self.deaf:
            self.engine_mems = sets["--cpuset-mems"] if self.writes_down else ""
            self.confine_memory(DOCKER if argv[0] == "docker" else PODMAN, sets["--cpuset-mems"])
        return Result(argv, 0, "")


def user(machine, group, *numbers, **values):
    """One user as the finder describes it; its processes are those of its group."""
    devices, processes = ["davinci%d" % number for number in numbers], []
    pids = sorted({pid for pid, other in machine.groups.values() if (other + "/").startswith(group + "/")})
    for pid in values.pop("pids", pids):
        tids = [tid for tid, (other, _group) in machine.groups.items() if other == pid]
        cpus = compress({cpu for tid in tids for cpu in expand(machine.cpus(tid))})
        start = int(machine.read("/proc/%d/stat" % pid).split()[-1])
        processes.append({"pid": pid, "start": start, "command": "worker", "devices": list(devices), "cpus": cpus})
    kinds = {SERVICE: "service", SESSION: "session", DOCKER: "container", PODMAN: "container"}
    found = {"group": group, "kind": kinds.get(group, "other"), "unit": os.path.basename(group), "processes": processes, "witness": "open"}
    container, engine, name = (ID, "docker" if "docker" in group else "podman", "llm") if ID in group else (None, "", found["unit"])
    found.update(container=container, engine=engine, name=name, devices=devices, npus=[{"kind": "npu", "id": number} for number in numbers])
    return {**found, "cpus": compress(machine.granted(group)), "mems": "0-1", **values}


def working(root, monkeypatch, keeps=True, v1=False):
    machine = Working(str(root), keeps, v1=v1)
    monkeypatch.setattr(interrupts.os, "sched_setaffinity", machine.set_affinity)
    return machine


def everything(machine, engine=DOCKER):
    """Work of every kind: ``[(group, NPU)]``, with the threads of each. ``engine``: the group of its container."""
    machine.engines = {ID: ""}
    machine.process(100, SERVICE, (None, "1", "5", "1,5"))
    machine.process(200, engine, (None, "6"))
    machine.process(300, SESSION, (None, "2", "0-4"))
    machine.process(310, SESSION)
    return lambda: [user(machine, engine, 1), user(machine, SERVICE, 1), user(machine, SESSION, 0, pids=[300])]


def container(machine, group=DOCKER, own="", threads=(None,)):
    """Start a container that uses NPU 1 and was given its ``own`` CPUs; return its users as they are found."""
    machine.engines = {ID: own}
    machine.process(200, group, threads)
    return lambda: [user(machine, group, 1)]


def plan_of(first, second):
    """The plan with other pools."""
    return {"npus": [dict(PLAN["npus"][0], pool=first), dict(PLAN["npus"][1], pool=second)]}


def switched_off(machine):
    """Switch adoption off, in a transaction that can be undone."""
    off = SwitchedOff(machine, None, False, ["adopt"])
    off.look(check=False)
    off.run()
    return off


class Adoption(Adopt):
    """The step that adopts these users; it has looked."""

    def __init__(self, machine, plan, users, expected=(), wanted=NOTHING, state=None):
        scope = Scope(plan, wanted, state)
        super().__init__(machine, Work(lambda *found: targets(machine, scope, users, dict(expected), *found), scope))
        self.look(check=False)

    @property
    def targets(self):
        return self.work.targets

    def run(self):
        super().run()
        self.finish()


def adopt(machine, users, plan=None, expected=(), wanted=NOTHING):
    adoption = Adoption(machine, plan or PLAN, users, expected, wanted)
    adoption.run()
    return adoption


def warnings(report):
    """The sentences of an unbind on what stays."""
    return [*report.warnings, *(text for part in report.restored.values() for text in part.warnings)]


def all_cpus(machine):
    return {tid: machine.cpus(tid) for tid in sorted(machine.groups)}
