# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one part of ``make test``: ``python -m tests.parts.run NAME LIMIT [COMMAND...]`` runs the command, by default ``make NAME``.

LIMIT is in CPU seconds of all processes that the part starts, because the clock says how busy the machine is and not how much work a part
is. A part that waits for something that never comes ends after :data:`NET` times as many seconds. ``$LOGS`` gets ``NAME.log`` and
``NAME.result`` (``STATUS SECONDS CPU_SECONDS``), which ``tests.parts.summary`` reads. Status 124: the limit was reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

NET = 4
"""The limit by the clock, as a multiple of that in CPU seconds."""
LIMIT_REACHED = 124
GRACE = 60
"""Seconds that a part has to end after SIGINT."""
POLL = 0.5
PR_SET_CHILD_SUBREAPER = 36


class Outcome(NamedTuple):
    """How a part ended, and the seconds that it took by the clock and of the CPU."""

    status: int
    seconds: int
    cpu_seconds: int


def run(name: str, limit: float, command: Sequence[str], logs: Path) -> Outcome:
    """Run a part in a session of its own and write its log and result. No process of it outlives the call."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # daemons of the part become children of this process, which counts and ends them
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    begun, reaped = time.monotonic(), children_seconds()
    with open(logs / f"{name}.log", "wb") as log:
        part = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            status = watch(part, begun, limit)
        finally:
            end_all(part)
    outcome = Outcome(status, round(time.monotonic() - begun), round(children_seconds() - reaped))
    (logs / f"{name}.result").write_text(" ".join(map(str, outcome)) + "\n")
    return outcome


def watch(part: subprocess.Popen[bytes], begun: float, limit: float) -> int:
    """Wait until the part ends or reaches a limit, and return its status."""
    reaped = children_seconds()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return part.wait(POLL)
        if time.monotonic() - begun > NET * limit or children_seconds() - reaped + living_seconds() > limit:
            return LIMIT_REACHED


def end_all(part: subprocess.Popen[bytes]) -> None:
    """End every process that the part started: by SIGINT, which lets it tidy up, then by SIGKILL."""
    if part.poll() is None:
        os.killpg(part.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            part.wait(GRACE)
    patience = time.monotonic() + GRACE
    while (family := psutil.Process().children(recursive=True)) and time.monotonic() < patience:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=POLL)


def children_seconds() -> float:
    """Return the CPU seconds of children that ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def living_seconds() -> float:
    """Return the CPU seconds of descendants that live, and of those that these waited for."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def main(arguments: Sequence[str]) -> int:
    name, limit, *command = arguments
    print(f"{name} ...", flush=True)
    outcome = run(name, float(limit), command or ["make", "--no-print-directory", name], Path(os.environ["LOGS"]))
    print(f"{name}: ended with status {outcome.status} after {outcome.seconds} s, {outcome.cpu_seconds} s of CPU", flush=True)
    return outcome.status


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
