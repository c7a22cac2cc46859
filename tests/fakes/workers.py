# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tree written from tables, processes in its /proc, and real ones whose threads have the names that torch_npu gives them."""

import json
import os
import stat
import subprocess
import sys

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from tests.fakes.programs import TOOL

WORKER = """
import ctypes, os, sys, threading
def run(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    print(os.readlink("/proc/thread-self").rpartition("/")[2], flush=True)  # Python 3.7 has no get_native_id
    threading.Event().wait()
print(os.getpid(), flush=True)
for line in iter(sys.stdin.readline, ""):
    word, value = line.split()
    if word == "thread":
        threading.Thread(target=run, args=(value,), daemon=True).start()
    elif os.fork():
        os.wait()
        sys.exit()
    else:
        os.open(value, os.O_RDONLY)
        print(os.getpid(), flush=True)
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
        "memory_nodes": str(number),
        "slice": "npu-%d.slice" % number,
    }
    entry.update(values)
    return entry


class LiveHost(Host):
    """The running machine, in a folder."""

    live = True

    def path(self, path):
        return self.root + path


class Tree:
    """A machine's tree below a temporary directory; ``host`` is what the code under test gets."""

    def __init__(self, root):
        self.root = str(root)
        self.host = Host(self.root, timeout=10)

    def write(self, files):
        """Write ``{path: text}``; a newline is added, as the kernel does. Text None makes a directory."""
        for path, text in files.items():
            target = self.root + path
            os.makedirs(target if text is None else os.path.dirname(target), exist_ok=True)
            if text is not None:
                with open(target, "w") as file:
                    file.write(str(text) + "\n")
        return self.host

    def tool(self, path, answers):
        """Write an executable that answers its arguments, joined by blanks, with a text or ``{text, rc, sleep}``."""
        target = self.root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w") as file:
            file.write("#!%s -IS\n%s" % (os.path.realpath(sys.executable), TOOL))
        os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR)
        answers = {words: answer if isinstance(answer, dict) else {"text": answer} for words, answer in answers.items()}
        with open(target + ".json", "w") as file:
            json.dump(answers, file)
        return target

    def calls(self, path):
        """Return the arguments of every call of a tool, in order."""
        try:
            with open(self.root + path + ".calls") as file:
                return file.read().splitlines()
        except OSError:
            return []


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
    """A real process with threads of these names; it, its threads and its forks end with the test.

    ``around``: the command that starts it. A fork does what the process did not: it opens a device.
    """

    def __init__(self, *names, around=()):
        command = [*around, sys.executable, "-c", WORKER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        self.pid = self.number()
        for name in names:
            self.start_thread(name)

    def number(self):
        return int(self.process.stdout.readline())

    def tell(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.number()

    def start_thread(self, name):
        return self.tell("thread", name)

    def open(self, path):
        """Let a fork open a file, and everything that follows be done by it; return its number."""
        return self.tell("open", path)

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
        self.end()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
