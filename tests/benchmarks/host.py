# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs of the collection cost on a host: ``python -m tests.benchmarks.host [NAME...]``, by default all :data:`BENCHMARKS`."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from ansible_collections.npu.affinity.plugins.module_utils._apply.runtime import archive
from ansible_collections.npu.affinity.plugins.module_utils._command.watch import Watch
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.pci import accelerators
from ansible_collections.npu.affinity.plugins.module_utils._users.finding import users
from tests.benchmarks.frame import ENVIRONMENT, cost, head, least, show, timed
from tests.fakes.ranks import install
from tests.fakes.watched import CPUS, Watched
from tests.simulator.generate import generate

MACHINE = "a3_640_split"
POOL = 40
"""CPUs of an NPU of that machine, which has 640 of them, and 16 functions of 18 named interrupts."""
EMPTY, SETUP, FACTS = "ansible.builtin.ping", "ansible.builtin.setup", "npu.affinity.topology_facts"
NPUS, PROCESSES, FILES = 16, 1000, 15
TARGETS = ("/dev/null", "socket:[81422]", "pipe:[4711]", "/var/log/messages", "anon_inode:[eventpoll]")
STATUS = "Name:\tworker\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n"
WORKERS, RATE, SECONDS = 200, 100, 20


def facts(folder: pathlib.Path) -> None:
    """The facts of a simulated host, whose npu-smi starts a Python for each of its three calls. An empty module is the share of Ansible."""
    generate(MACHINE, folder / "host")
    environment = {
        **ENVIRONMENT,
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "true",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        "ANSIBLE_NOCOLOR": "true",
    }
    command = ["ansible", "localhost", "-c", "local", "-m"]
    calls = {EMPTY: [*command, EMPTY], SETUP: [*command, SETUP], FACTS: [*command, FACTS, "-a", f"root={folder}/host"]}
    seconds = least({name: lambda call=call: cost(call, environment).wall for name, call in calls.items()}, 5)
    printed = cost(calls[FACTS], environment).output
    found = json.loads(printed[printed.index("{") :])["ansible_facts"]["npu_affinity_topology"]
    if len(found["npus"]) != NPUS or found["problems"]:
        sys.exit(f"the facts are not those of a healthy {MACHINE}: {len(found['npus'])} NPUs, problems {found['problems']}")
    head("facts", SETUP.rpartition(".")[2], "least wall")
    show("an empty module", seconds[EMPTY], seconds[SETUP])
    show("topology_facts", seconds[FACTS], seconds[SETUP])
    show("topology_facts, both without an empty module", seconds[FACTS] - seconds[EMPTY], seconds[SETUP] - seconds[EMPTY], "0.50 wanted")
    print(f"{'size as JSON':<100}{len(json.dumps(found)) / 1024:>9.1f} KiB, less than 24 wanted")


def irq(folder: pathlib.Path) -> None:
    """The program that the boot units and the timer run, as they run it."""
    tree, package = folder / "tree", folder / "npu_affinity.zip"
    generate(MACHINE, tree)
    package.write_bytes(archive())
    npus = [
        {"id": number, "pci": pci, "pool": f"{POOL * number}-{POOL * number + POOL - 1}", "irq": f"{POOL * number}-{POOL * number + 1}"}
        for number, pci in enumerate(accelerators(Host(str(tree)))[0])
    ]
    (tree / "etc/npu-affinity").mkdir(parents=True)
    (tree / "etc/npu-affinity/plan.json").write_text(json.dumps({"schema": 1, "npus": npus}))
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-m", "npu_affinity", "irq", "--root", str(tree)]
    first = cost(program, environment)
    calls = {"python": [sys.executable, "-c", "pass"], "all bound already": program}
    calls["one function, all bound already"] = [*program, "--pci", npus[0]["pci"]]
    seconds = least({name: lambda call=call: cost(call, environment).cpu for name, call in calls.items()})
    size = (tree / "proc/interrupts").stat().st_size
    head(f"irq, /proc/interrupts of {size / 1e6:.1f} MB", "python")
    show(f"first run, in which all interrupts of {len(npus)} NPUs move", first.cpu, seconds["python"])
    for name in [*calls][1:]:
        show(name, seconds[name], seconds["python"])


def launch(folder: pathlib.Path) -> None:
    """What ``npu-affinity exec`` adds to the start of each rank, as installed on a host; ``--version`` is without its quick start."""
    launcher = install(folder, [str(min(os.sched_getaffinity(0)))] * NPUS)
    environment = {"LOCAL_RANK": "3", "PATH": os.environ["PATH"]}
    calls = {
        "/bin/true": ["/bin/true"],
        "python3 -c pass": ["/usr/bin/python3", "-c", "pass"],
        "npu-affinity exec -- /bin/true": [launcher, "exec", "--root", str(folder), "--", "/bin/true"],
        "npu-affinity --version": [launcher, "--version"],
    }
    seconds = least({name: lambda call=call: cost(call, environment).cpu for name, call in calls.items()}, 40)
    head("exec, of which at most 40 ms are wanted", "python3")
    for name in calls:
        show(name, seconds[name], seconds["python3 -c pass"])


def add(root: pathlib.Path, pid: int, holds: int | None, threads: int) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("worker\n")
    (folder / "cgroup").write_text(f"0::/system.slice/worker-{pid}.service\n")
    for number in range(FILES):
        target = f"/dev/davinci{holds}" if holds is not None and number == FILES - 1 else TARGETS[number % len(TARGETS)]
        (folder / "fd" / str(number)).symlink_to(target)
    for thread in range(threads if holds is not None else 0):
        task = folder / "task" / str(pid + thread)
        task.mkdir(parents=True)
        (task / "status").write_text(STATUS)


def holders(folder: pathlib.Path) -> None:
    """One pass over the open files of all processes, which tells who uses NPUs: folders of processes, 16 of which hold one."""
    npus = [{"kind": "npu", "id": number, "phy_id": number, "pci": f"0000:{number:02x}:00.0"} for number in range(NPUS)]
    head(f"users of NPUs among {PROCESSES} processes with {FILES} files each", "their links")
    for threads, wanted in ((1, "at most 100 ms wanted"), (100, "")):
        root = folder / str(threads)
        for number in range(PROCESSES):
            add(root, 1000 + 200 * number, number if number < NPUS else None, threads)
        found = users(Host(str(root)), npus)
        if len(found) != NPUS or any(len(user["npus"]) != 1 for user in found):
            sys.exit(f"{len(found)} users were found, expected {NPUS} with one NPU each")
        links = timed(lambda root=root: [os.readlink(path) for path in root.glob("proc/*/fd/*")])
        seconds = least({"users": timed(lambda root=root: users(Host(str(root)), npus)), "links": links})
        show(f"holders with {threads} threads", seconds["users"], seconds["links"], wanted)


def opened(machine: Watched, number: int) -> float:
    """Fork and open a device, as workers of vLLM do, and return the milliseconds until the process has the CPUs of that device."""
    wanted = {CPUS[-1] if number else CPUS[0]}
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.sched_setaffinity(0, CPUS)
        os.open(machine.path("/dev/davinci%d" % number), os.O_RDONLY)
        begin = time.monotonic()
        while os.sched_getaffinity(0) != wanted and time.monotonic() < begin + 5:
            time.sleep(0.0005)
        os.write(writer, b"%f" % ((time.monotonic() - begin) * 1000))
        os._exit(0)
    os.waitpid(pid, 0)
    taken = float(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    return taken


def used(pid: int) -> tuple[float, float, int]:
    """Return the time, the CPU seconds of a process, and how many processes this machine has started: all of them cost the watcher."""
    seconds = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return time.monotonic(), seconds, int(pathlib.Path("/proc/stat").read_text().partition("\nprocesses ")[2].split()[0])


def watch(folder: pathlib.Path) -> None:
    """How soon the watcher places a process that opens a device, and what it takes while programs start. Needs root and two CPUs."""
    machine = Watched(folder)
    watching = Watch(machine)
    watcher = os.fork()
    if not watcher:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        watching.run()
    try:
        print(f"\nwatch: {watching.sources()}")
        time.sleep(1)
        times = sorted(opened(machine, number % 2) for number in range(WORKERS))
        begin, before, others = used(watcher)
        for count in range(SECONDS * RATE):
            os.posix_spawn("/bin/true", ["/bin/true"], {})
            time.sleep(max(0.0, begin + (count + 1) / RATE - time.monotonic()))
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        end, after, all_forks = used(watcher)
    finally:
        os.kill(watcher, 15)
    rest = f"99 % {times[int(0.99 * WORKERS)]:.0f} ms, longest {times[-1]:.0f} ms"
    print(f"open to placement, {WORKERS} workers: median {statistics.median(times):.0f} ms, at most 100 wanted; {rest}")
    rate, percent = (all_forks - others) / (end - begin), 100 * (after - before) / (end - begin)
    print(f"{rate:.0f} processes a second: {percent:.2f} % of a CPU, at most 1 wanted for {RATE}")


BENCHMARKS = {"facts": facts, "irq": irq, "users": holders, "exec": launch, "watch": watch}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        with tempfile.TemporaryDirectory() as place:
            BENCHMARKS[name](pathlib.Path(place))
