# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon the watcher places a process that opens a device, and the CPU time that it takes while programs start.

    python -m tests.benchmarks.watch [SECONDS]

It needs root and two CPUs. Each worker forks and opens a device, as those of vLLM do. What else the machine starts costs as well, so the
rate is that of all forks.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time

from ansible_collections.npu.affinity.plugins.module_utils._command.watch.program import Watch
from tests.fakes.watched import CPUS, Watched

WORKERS = 200
RATE = 100
LIMIT_MS, LIMIT_PERCENT = 100, 1.0


def opened(machine: Watched, number: int) -> float:
    """Fork, open a device, and return the milliseconds until the process has the CPUs of that device."""
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


def cpu_seconds(pid: int) -> float:
    return int(pathlib.Path("/proc/%d/schedstat" % pid).read_text().split()[0]) / 1e9


def forks() -> int:
    return int(pathlib.Path("/proc/stat").read_text().partition("\nprocesses ")[2].split()[0])


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Watched(pathlib.Path(folder))
        watch = Watch(machine)
        watcher = os.fork()
        if not watcher:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            watch.run()
        try:
            print(watch.sources())
            time.sleep(1)
            times = sorted(opened(machine, number % 2) for number in range(WORKERS))
            before, begin, count, others = cpu_seconds(watcher), time.monotonic(), 0, forks()
            while time.monotonic() < begin + seconds:
                os.posix_spawn("/bin/true", ["/bin/true"], {})
                count += 1
                time.sleep(max(0.0, begin + count / RATE - time.monotonic()))
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass
            percent = 100 * (cpu_seconds(watcher) - before) / (time.monotonic() - begin)
            rate = (forks() - others) / (time.monotonic() - begin)
        finally:
            os.kill(watcher, 15)
    median = statistics.median(times)
    others = f"99 % {times[int(0.99 * WORKERS)]:.0f} ms, longest {times[-1]:.0f} ms"
    print(f"open to placement, {WORKERS} workers: median {median:.0f} ms, at most {LIMIT_MS} wanted; {others}")
    print(f"{rate:.0f} processes a second: {percent:.2f} % of a CPU, at most {LIMIT_PERCENT} wanted for {RATE}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
