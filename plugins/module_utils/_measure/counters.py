# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel counts of threads and CPUs. Reads only.

Sources: Linux ``Documentation/filesystems/proc.rst`` (``stat``, ``status``, ``/proc/stat``),
``Documentation/scheduler/sched-stats.rst`` (``/proc/<pid>/schedstat``) and ``kernel/sched/debug.c`` (``/proc/<pid>/sched``, only in kernels
with CONFIG_SCHED_DEBUG).
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Pattern, Tuple

from .._host.host import CommandError, Host
from .._kernel.processes import START, stat_fields

Key = Tuple[int, int]
"""Process and thread."""
SWITCHES = "status", re.compile(r"^nonvoluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
MIGRATIONS = "sched", re.compile(r"^se\.nr_migrations\s*:\s*(\d+)", re.MULTILINE)
"""Involuntary context switches and moves to another CPU: the file of a thread that counts them, and how."""
_PERF = re.compile(r"^(\d+),[^,]*,(?:cpu-migrations|migrations)(?::u)?,", re.MULTILINE)
PERF_FOLDERS = ["/usr/bin", "/usr/local/bin"]


class Run(NamedTuple):
    """How long a thread has run and waited for a CPU so far, in ns (None where the kernel does not tell), and the CPU where it ran last."""

    started: int
    cpu: int
    runtime: int | None
    waited: int | None


def _tasks(host: Host, pids: Iterable[int]) -> Iterator[tuple[Key, str]]:
    for pid in pids:
        for name in host.names("/proc/%d/task" % pid, "[0-9]*"):
            yield (pid, int(name)), "/proc/%d/task/%s/" % (pid, name)


def counts(host: Host, pids: Iterable[int], name: str, pattern: Pattern[str]) -> dict[Key, int]:
    """Return ``{(pid, tid): count so far}`` of :data:`SWITCHES` or :data:`MIGRATIONS`; empty where the kernel does not tell."""
    matches = {key: pattern.search(host.read(folder + name) or "") for key, folder in _tasks(host, pids)}
    return {key: int(match.group(1)) for key, match in matches.items() if match}


def runs(host: Host, pids: Iterable[int]) -> dict[Key, Run]:
    """Return ``{(pid, tid): Run}`` of all threads of processes."""
    by_thread = {}
    for key, folder in _tasks(host, pids):
        fields = stat_fields(host, folder.rstrip("/"))
        times = (host.read(folder + "schedstat") or "").split()
        if len(fields) > 36:
            runtime, waited = (int(times[0]), int(times[1])) if len(times) > 1 else (None, None)
            by_thread[key] = Run(int(fields[START]), int(fields[36]), runtime, waited)
    return by_thread


def perf_migrations(host: Host, pids: Iterable[int], seconds: float) -> tuple[int | None, str | None]:
    """Return ``(moves to another CPU while so many seconds pass, None)`` as perf counts them, or ``(None, why it could not)``."""
    perf = host.find_program("perf", PERF_FOLDERS)
    if perf is None:
        return None, "this kernel has no /proc/<pid>/sched, and perf is not installed"
    command = [perf, "stat", "-x", ",", "-e", "cpu-migrations", "-p", ",".join(str(pid) for pid in sorted(pids)), "sleep", "%g" % seconds]
    try:
        answer = host.run(command, timeout=seconds + 30)
    except CommandError as error:
        return None, str(error)
    match = _PERF.search(answer.output)
    if answer.rc or not match:
        return None, "perf does not count cpu-migrations: %s" % (answer.output.strip().splitlines() or ["no answer"])[-1]
    return int(match.group(1)), None


def busy(host: Host) -> dict[int, float]:
    """Return ``{cpu: seconds}`` that CPUs have run tasks so far, interrupts not counted; empty where /proc/stat does not tell."""
    ticks = float(os.sysconf("SC_CLK_TCK"))
    seconds = {}
    for line in (host.read("/proc/stat") or "").splitlines():
        words = line.split()
        if words and words[0].startswith("cpu") and words[0][3:].isdigit():
            seconds[int(words[0][3:])] = sum(int(word) for word in words[1:4]) / ticks
    return seconds


def grown(before: Mapping[Any, int], after: Mapping[Any, int]) -> int:
    """Return the sum of what counters have grown by, those that are new from zero on; what is gone does not count."""
    return sum(value - before.get(key, 0) for key, value in after.items())
