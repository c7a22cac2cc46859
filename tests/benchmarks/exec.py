# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time that ``npu-affinity exec`` adds to the start of each rank, as installed on a host.

    python -m tests.benchmarks.exec [ROUNDS]

The baselines of the same run are ``/bin/true`` alone, ``python3 -c pass``, and the command without its quick start (``--version``).
All take turns: a busy machine slows each of them.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile

from tests.fakes.ranks import install

PYTHON = "/usr/bin/python3"
LIMIT_MS = 40
NPUS = 16


def cpu_ms(command: list[str]) -> float:
    """Return the CPU time of a process in milliseconds, that of a program which it executes included."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command[0], command, {"LOCAL_RANK": "3", "PATH": os.environ["PATH"]}, file_actions=silent)
    _pid, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} ended with status {status}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        launcher = install(pathlib.Path(folder), [str(min(os.sched_getaffinity(0)))] * NPUS)
        runs = {
            "/bin/true": ["/bin/true"],
            "python3 -c pass": [PYTHON, "-c", "pass"],
            "npu-affinity exec -- /bin/true": [launcher, "exec", "--root", folder, "--", "/bin/true"],
            "npu-affinity --version": [launcher, "--version"],
        }
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _round in range(rounds):
            for name, command in runs.items():
                taken[name].append(cpu_ms(command))
    print(f"CPU ms of {rounds} rounds, best and median; exec: at most {LIMIT_MS} wanted")
    for name, times in taken.items():
        print(f"  {name:32} {min(times):6.1f} {statistics.median(times):6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
