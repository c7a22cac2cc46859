# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What benchmarks share: they measure something and a baseline in turns, because a busy machine slows both, and print the ratio."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
    "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build"),
    "ANSIBLE_LOCALHOST_WARNING": "false",
}


class Cost(NamedTuple):
    """Wall and CPU seconds of a command and of what it waited for, the size of its largest process in MiB, and what it printed."""

    wall: float
    cpu: float
    memory: float
    output: str


def cost(command: Sequence, environment: Mapping[str, str] = ENVIRONMENT) -> Cost:
    """Run a command; a failure ends the benchmark with the output's end."""
    with tempfile.TemporaryFile() as file:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=REPOSITORY)
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        file.seek(0)
        output = file.read().decode()
    if status:
        sys.exit(output[-4000:])
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def timed(function: Callable[[], object], number: int = 1) -> Callable[[], float]:
    """Return what measures the CPU seconds of a call, the mean of so many."""
    return lambda: timeit.timeit(function, number=number, timer=time.process_time) / number


def least(measures: Mapping[str, Callable[[], float]], rounds: int = 7) -> dict[str, float]:
    """Return the least that each of several measures gave; they take turns."""
    taken = [{name: measure() for name, measure in measures.items()} for _round in range(rounds)]
    return {name: min(each[name] for each in taken) for name in measures}


def show(name: str, seconds: float, baseline: float, note: str = "") -> None:
    print(f"{name:<100}{seconds * 1e3:>10.2f} ms{baseline * 1e3:>10.2f} ms{seconds / baseline:>8.2f}  {note}".rstrip(), flush=True)


def head(name: str, baseline: str, what: str = "least CPU") -> None:
    print(f"\n{name:<100}{what:>13}{baseline:>13}{'ratio':>8}", flush=True)
