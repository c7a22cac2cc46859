# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to the workloads of NPUs while some seconds pass: evidence for or against a bind. Reads only.

Every metric has its source, and one that could not be read says why instead of being guessed. What the kernel counts: Linux
``Documentation/filesystems/proc.rst`` (``stat``, ``status``, ``/proc/stat``), ``Documentation/scheduler/sched-stats.rst``
(``/proc/<pid>/schedstat``) and ``kernel/sched/debug.c`` (``/proc/<pid>/sched``, only in kernels with CONFIG_SCHED_DEBUG).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, NamedTuple, Pattern, Sequence, Tuple, cast

from ._base.cpulist import compress, expand
from ._base.findings import Device, coded
from ._host.host import CommandError, Host
from ._kernel.cpus import CPU_FOLDER, read_list
from ._kernel.devices import share_out
from ._kernel.interrupts import interrupt_counts, interrupt_names, requested
from ._kernel.processes import START, stat_fields
from ._features.threads.memory import tables
from ._features.threads.tasks import Process, find, groups_of, titles_of

if TYPE_CHECKING:
    from ._base.documents import Plan, PlanEntry, WantedProcesses

UNITS = {
    "involuntary_switches": "per s",
    "cpu_migrations": "per s",
    "waiting": "ms per s",
    "remote_memory": "MiB",
    "interrupts": "per s",
    "interrupts_on_workers": "per s",
    "others_share": "%",
}
_NO_PROCESS = "no process of it was found"
_ENDED = "all of its processes ended"
Key = Tuple[int, int]
"""Process and thread."""
SWITCHES = "status", re.compile(r"^nonvoluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
MIGRATIONS = "sched", re.compile(r"^se\.nr_migrations\s*:\s*(\d+)", re.MULTILINE)
"""Involuntary context switches and moves to another CPU: the file of a thread that counts them, and how."""
_PERF = re.compile(r"^(\d+),[^,]*,(?:cpu-migrations|migrations)(?::u)?,", re.MULTILINE)
WINDOWS = 10
"""A measurement is divided into so many parts, whose values tell how much they vary by themselves."""


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
    perf = host.find_program("perf", ["/usr/bin", "/usr/local/bin"])
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


class Workload:
    """Processes of the same NPUs, and what was counted of them and of the ``numbers`` of their interrupts since it was made.

    What ran on a CPU is what /proc/stat counts; what a workload's own threads ran is in their schedstat, put down to the CPU where they
    were seen at the end of each interval. perf counts moves to other CPUs for some ``seconds`` where the kernel has no such counter.
    """

    def __init__(
        self, host: Host, npus: Sequence[PlanEntry], processes: Sequence[Process], online: set[int], numbers: set[int], seconds: float
    ) -> None:
        self._host, self._npus, self._processes, self._numbers = host, npus, processes, numbers
        self.title = titles_of(npus)
        self.pids = [process.pid for process in processes]
        self._pool = {cpu for npu in npus for cpu in expand(npu["pool"])}
        self._online = self._pool & online if online else self._pool
        self._workers = self._pool - {cpu for npu in npus for cpu in expand(npu.get("irq") or "")}
        self._metrics: dict[str, dict[str, Any]] = {}
        self._first = self._last = self._counters()
        self._rates: dict[str, list[float]] = {name: [] for name in self._first}
        self._sums = dict.fromkeys(self._first, 0)
        self._runs = runs(host, self.pids)
        self._others, self._waited, self._moves = 0.0, 0, 0
        self._ends = [(0.0, self._others, self._waited)]
        self._by_perf: list[tuple[int | None, str | None]] = []
        self._perf = threading.Thread(target=lambda: self._by_perf.append(perf_migrations(host, self.pids, seconds)), daemon=True)
        if self.pids and not self._first["cpu_migrations"]:
            self._perf.start()

    def _counters(self) -> dict[str, Mapping[Any, int]]:
        per_cpu: Counter[int] = Counter()
        for of_interrupt in interrupt_counts(self._host, self._numbers).values():
            per_cpu.update(of_interrupt)
        return {
            "involuntary_switches": counts(self._host, self.pids, *SWITCHES),
            "cpu_migrations": counts(self._host, self.pids, *MIGRATIONS),
            "interrupts": per_cpu,
            "interrupts_on_workers": {cpu: count for cpu, count in per_cpu.items() if cpu in self._workers},
        }

    def sample(self, before: Mapping[int, float], now: Mapping[int, float]) -> None:
        """Add what ran in an interval, from the seconds that CPUs had run tasks at its ends."""
        own_time, earlier = 0, self._runs
        self._runs = runs(self._host, self.pids)
        for key, run in self._runs.items():
            last = earlier.get(key)
            last = last if last and last.started == run.started else None
            if run.runtime is not None and run.waited is not None:
                own_time += run.runtime - (last and last.runtime or 0) if run.cpu in self._online else 0
                self._waited += run.waited - (last and last.waited or 0)
            self._moves += bool(last and last.cpu != run.cpu)
        all_tasks = sum(now[cpu] - before.get(cpu, now[cpu]) for cpu in self._online if cpu in now)
        self._others += all_tasks - own_time / 1e9

    def end_window(self, passed: float) -> None:
        seconds, counters = passed - self._ends[-1][0], self._counters()
        for name, now in counters.items():
            more = grown(self._last[name], now)
            self._sums[name] += more
            self._rates[name].append(more / seconds)
        self._last = counters
        self._ends.append((passed, self._others, self._waited))

    def result(self, has_busy: bool) -> dict[str, Any]:
        """Return the row of the workload; ``has_busy``: whether the time that CPUs run tasks is known."""
        missing = None if self._last["involuntary_switches"] else _ENDED if self.pids else _NO_PROCESS
        self._add_counter("involuntary_switches", "/proc/<pid>/status", missing)
        for name in ("interrupts", "interrupts_on_workers"):
            self._add_counter(name, "/proc/interrupts", None if self._numbers else "its driver has requested no interrupts")
        self._add_moves()
        self._add_times(has_busy)
        memory, first = self._add_memory(), self._first["interrupts"]
        rates = {cpu: (count - first.get(cpu, 0)) / self._ends[-1][0] for cpu, count in self._last["interrupts"].items()}
        return {
            "title": self.title,
            "npus": [npu["id"] for npu in self._npus],
            "pool": compress(self._pool),
            "processes": [{"pid": process.pid, "name": process.name, "found_by": process.found_by} for process in self._processes],
            "threads": len(self._last["involuntary_switches"]),
            "metrics": {name: self._metrics[name] for name in UNITS},
            "interrupts": {str(cpu): round(rate, 1) for cpu, rate in sorted(rates.items()) if rate > 0},
            "memory": memory,
        }

    def _add(self, name: str, values: Sequence[float], source: str, missing: str | None = None) -> None:
        """Add a metric: the value of the whole time, and those of its windows."""
        value, windows = (None, []) if missing else (round(values[0], 1), [round(part, 3) for part in values[1:]])
        self._metrics[name] = {"value": value, "unit": UNITS[name], "source": source, "missing": missing, "windows": windows}

    def _add_counter(self, name: str, source: str, missing: str | None) -> None:
        self._add(name, [self._sums[name] / self._ends[-1][0], *self._rates[name]], source, missing)

    def _add_moves(self) -> None:
        """Add moves of threads to other CPUs, as exactly as this kernel lets."""
        if not self._perf.ident:
            self._add_counter("cpu_migrations", "/proc/<pid>/sched", None if self.pids else _NO_PROCESS)
            return
        self._perf.join()
        (moves, why), seconds = self._by_perf[0], self._ends[-1][0]
        missing = "%s; at least %.1f per s were seen by sampling" % (why, self._moves / seconds) if moves is None else None
        self._add("cpu_migrations", [(moves or 0) / seconds], "perf", missing)

    def _add_times(self, has_busy: bool) -> None:
        has_schedstat = {run.runtime is not None for run in self._runs.values()}
        missing = None
        if not has_busy:
            missing = "/proc/stat could not be read"
        elif not self._online:
            missing = "no CPU of its pool is online"
        elif False in has_schedstat:
            missing = "this kernel has no schedstat, so its own time cannot be separated from that of others"
        spans = [(self._ends[0], self._ends[-1]), *zip(self._ends, self._ends[1:])]
        seconds = [(now[0] - last[0]) * len(self._online) or 1.0 for last, now in spans]
        shares = [min(100.0, max(0.0, 100.0 * (now[1] - last[1]) / span)) for (last, now), span in zip(spans, seconds)]
        self._add("others_share", shares, "/proc/stat, schedstat, sampled", missing)
        missing = None if True in has_schedstat else "this kernel has no schedstat" if has_schedstat else _NO_PROCESS
        self._add("waiting", [(now[2] - last[2]) / 1e6 / (now[0] - last[0]) for last, now in spans], "schedstat", missing)

    def _add_memory(self) -> list[dict[str, Any]]:
        """Add the metric of memory and return the tables of the processes."""
        rows, unread = tables(self._host, self._processes)
        missing = None
        if not self.pids:
            missing = _NO_PROCESS
        elif not rows:
            missing = "; ".join(unread) or _ENDED
        elif not rows[0]["wanted"]:
            missing = "the plan has no memory nodes for it"
        elif unread:
            missing = "; ".join(unread)
        self._add("remote_memory", [sum(row["remote_mib"] for row in rows)], "/proc/<pid>/numa_maps", missing)
        return rows


def _vectors(host: Host, plan: Plan) -> dict[str, set[int]]:
    """Return ``{title: interrupt numbers}`` of the plan's NPUs."""
    names = interrupt_names(host)
    functions: dict[str, list[PlanEntry]] = {}
    for npu in plan["npus"]:
        functions.setdefault((npu.get("pci") or "").lower(), []).append(npu)
    shares = [share for pci, npus in functions.items() for share in share_out(npus, requested(host, pci, names) if pci else [])]
    return {Device.of(npu).title: {vector.irq for vector in vectors} for npu, _number, vectors in shares}


def workloads(host: Host, plan: Plan, processes: Iterable[Process], seconds: float) -> list[Workload]:
    """Return the :class:`Workload` list: processes by their NPUs, then the NPUs of the plan that have none, in the order of the plan."""
    together: dict[tuple[str, ...], list[Process]] = {}
    for process in processes:
        together.setdefault(tuple(Device.of(npu).title for npu in process.npus), []).append(process)
    covered = {title for key in together for title in key}
    groups = [(cast("Sequence[PlanEntry]", members[0].npus), members) for _, members in sorted(together.items())]
    groups += [([npu], []) for npu in plan["npus"] if Device.of(npu).title not in covered]
    numbers, online = _vectors(host, plan), read_list(host, CPU_FOLDER + "/online")
    return [
        Workload(host, npus, members, online, {irq for npu in npus for irq in numbers[Device.of(npu).title]}, seconds)
        for npus, members in groups
    ]


def measure(host: Host, plan: Plan, wanted: Iterable[WantedProcesses] = (), seconds: float = 30, interval: float = 1.0) -> dict[str, Any]:
    """Return ``{seconds, workloads, remarks}`` of what happened while about so many seconds passed.

    A workload is ``{title, npus, pool, processes, threads, metrics, interrupts, memory}``: ``metrics`` are ``{value, unit, source,
    missing, windows}`` by the names of :data:`UNITS`, where ``missing`` says why there is no value, and ``windows`` are the values of the
    parts of the time, [] for what was read once; ``interrupts`` are per CPU and s; ``memory`` has the tables of
    :func:`threads.memory.tables`. ``wanted``: see :func:`threads.tasks.groups_of`; processes in pods are measured, too.
    ``interval``: seconds between samples. Raises ``ValueError`` for what is not a plan, or asks for an NPU that it does not have.
    """
    processes, warnings = find(host, plan, groups_of(plan, wanted), pods=True)
    loads = workloads(host, plan, processes, seconds)
    start, passed, last = time.monotonic(), 0.0, busy(host)
    for window in range(1, WINDOWS + 1):
        end, before = seconds * window / WINDOWS, passed
        while passed < end:
            time.sleep(max(0.01, min(interval, end - passed)))
            now = busy(host)
            for load in loads:
                load.sample(last, now)
            last, passed = now, time.monotonic() - start
        if passed > before:
            for load in loads:
                load.end_window(passed)
    rows, remarks = [load.result(bool(last)) for load in loads], list(warnings)
    for load in loads:
        ended = [pid for pid in load.pids if not host.exists("/proc/%d" % pid)]
        if ended:
            remarks.append("%s: %d of %d processes ended meanwhile; their counts are lost" % (load.title, len(ended), len(load.pids)))
    return {"seconds": round(passed, 1), "workloads": rows, "remarks": coded("NPU_MEASURE_INCOMPLETE", remarks)}
