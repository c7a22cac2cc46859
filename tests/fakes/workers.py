# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes for tests: in a made-up /proc, and real ones whose threads have the names that torch_npu gives them."""

from __future__ import annotations

import glob
import os
import subprocess
import sys

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.masks import cpuset

WORKER = """
import ctypes, sys, threading, time
prctl = ctypes.CDLL(None).prctl
def run(name, started):
    prctl(15, name.encode(), 0, 0, 0)
    started.set()
    while True:
        time.sleep(0.05)
def start(name):
    started = threading.Event()
    threading.Thread(target=run, args=(name, started), daemon=True).start()
    started.wait()
for name in sys.argv[1:]:
    start(name)
print("ready", flush=True)
for line in sys.stdin:
    start(line.strip())
    print("started", flush=True)
"""
"""15 is PR_SET_NAME, which names the calling thread."""


def npu(number, first, **values):
    """An entry of a plan: eight CPUs from ``first`` on, in the published roles."""
    entry = {
        "id": number,
        "phy_id": number,
        "pci": "0000:%02x:00.0" % (0xC1 + number),
        "pool": "%d-%d" % (first, first + 7),
        "irq": "%d-%d" % (first, first + 1),
        "main": "%d-%d" % (first + 2, first + 5),
        "acl": str(first + 6),
        "release": str(first + 7),
        "mems": str(number),
        "slice": "npu-%d.slice" % number,
    }
    entry.update(values)
    return entry


class LiveHost(Host):
    """The running machine, in a folder."""

    live = True

    def path(self, path):
        return self.root + path


class Files:
    """The tree of a machine for tests that have no fixture ``tree``."""

    def __init__(self, root):
        self.root = str(root)
        self.host = Host(self.root)

    def write(self, files):
        for path, text in files.items():
            os.makedirs(os.path.dirname(self.root + path), exist_ok=True)
            with open(self.root + path, "w") as file:
                file.write("%s\n" % text)


class Kernel(Files):
    """The tree of a running machine in which every thread has the CPUs that a real kernel would show, in one cpuset at a time.

    ``keeps``: whether it keeps the mask that was asked for and applies it to every cpuset, as Linux 6.2 and newer do.
    """

    def __init__(self, root, cpus, keeps):
        Files.__init__(self, root)
        self.host = LiveHost(self.root)
        self.keeps = keeps
        self.asked = {}
        self.write({"/sys/devices/system/cpu/%s" % name: cpus for name in ("online", "possible")})

    def set_affinity(self, tid, cpus):
        """Stand in for ``os.sched_setaffinity``."""
        if self.keeps:
            self.asked[tid] = set(cpus)
        self._show(tid, set(cpus))

    def set_cpuset(self, group, cpus):
        """Give another set to the group that all threads are in: a thread without a mask gets all of it."""
        self.write({"/sys/fs/cgroup%s/cpuset.cpus.effective" % group: cpus})
        for path in self._statuses("*"):
            tid = int(path.split("/")[-2])
            self._show(tid, self.asked.get(tid, set(expand(cpus))))

    def allowed(self, tid):
        (path,) = self._statuses(str(tid))
        with open(path) as file:
            return file.read().rstrip("\n").rpartition("\t")[2]

    def _statuses(self, tid):
        return sorted(glob.glob("%s/proc/%s/status" % (self.root, tid)) + glob.glob("%s/proc/*/task/%s/status" % (self.root, tid)))

    def _show(self, tid, cpus):
        (path,) = self._statuses(str(tid))
        process = path.split("/proc/")[1].partition("/")[0]
        granted = cpuset(self.host, int(process))
        with open(path) as file:
            head = file.read().rstrip("\n").rpartition("\t")[0]
        with open(path, "w") as file:
            file.write("%s\t%s\n" % (head, compress(cpus & granted or granted)))


def process(tree, pid, cgroup, names, cpus="0-31", granted=None, devices=()):
    """Write a process: its first name is its own, each name is a thread; ``granted`` is the cpuset of its cgroup."""
    files = {"/proc/%d/comm" % pid: names[0], "/proc/%d/cgroup" % pid: cgroup if ":" in cgroup else "0::" + cgroup}
    files["/proc/%d/cmdline" % pid] = names[0]
    for number, name in enumerate(names):
        folder = "/proc/%d/task/%d/" % (pid, pid + number)
        files[folder + "comm"] = name
        files[folder + "status"] = "Name:\t%s\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t%s" % (name, cpus)
    if granted is not None:
        files["/sys/fs/cgroup%s/cpuset.cpus.effective" % cgroup] = granted
    tree.write(files)
    for number, device in enumerate(devices):
        folder = tree.root + "/proc/%d/fd" % pid
        os.makedirs(folder, exist_ok=True)
        os.symlink(device, "%s/%d" % (folder, number))


def allowed(tree, pid):
    """``{thread name: cpulist}`` of a process in a made-up tree."""
    found = {}
    folder = tree.root + "/proc/%d/task" % pid
    for name in sorted(os.listdir(folder)):
        texts = []
        for file in ("comm", "status"):
            with open("%s/%s/%s" % (folder, name, file)) as opened:
                texts.append(opened.read().strip())
        found[texts[0]] = texts[1].rpartition("\t")[2]
    return found


class RealWorker:
    """A real process with threads of these names; it and its threads end with the test."""

    def __init__(self, *names):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER] + list(names), stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
        )
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def start_thread(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "started\n"

    def affinities(self):
        """``{thread name: CPUs}`` as the kernel's own call tells them."""
        found = {}
        for tid in os.listdir("/proc/%d/task" % self.pid):
            with open("/proc/%d/task/%s/comm" % (self.pid, tid)) as file:
                found[file.read().strip()] = os.sched_getaffinity(int(tid))
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
