# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to the workloads of NPUs while some seconds pass: evidence for or against a bind. Reads only.

Every metric has its source, and one that could not be read says why instead of being guessed.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .._base.findings import coded
from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.devices import share_out
from .._kernel.cpus import CPU_FOLDER, read_list
from .._kernel.interrupts import interrupt_names, requested
from .._base.findings import Device
from .._features.threads.memory import tables
from .._features.threads.tasks import Process, find, groups_of, titles_of
from .counters import busy, grown, interrupts, migrations, perf_migrations, runs, switches

if TYPE_CHECKING:
    from .._base.documents import Plan

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
_NANO = 1e9
WINDOWS = 10
"""A measurement is divided into so many parts, whose values tell how much they vary by themselves."""


class Workload:
    """Processes of the same NPUs. ``cpus`` are the online CPUs of their pools, ``workers`` those of all roles but irq."""

    def __init__(self, npus: Sequence[Mapping[str, Any]], processes: Sequence[Process], online: set[int]) -> None:
        self.npus = npus
        self.processes = processes
        self.pids = [process.pid for process in processes]
        self.pool = {cpu for npu in npus for cpu in expand(npu["pool"])}
        self.cpus = self.pool & online if online else self.pool
        irq = {cpu for npu in npus for cpu in expand(npu.get("irq") or "")}
        self.workers = self.pool - irq
        self.title = titles_of(npus)
        self.metrics: dict[str, dict[str, Any]] = {}

    def metric(self, name: str, value: float | None, source: str, missing: str | None = None, windows: Iterable[float] = ()) -> None:
        rounded = None if value is None else round(value, 1)
        parts = [] if value is None else [round(part, 3) for part in windows]
        self.metrics[name] = {"value": rounded, "unit": UNITS[name], "source": source, "missing": missing, "windows": parts}


def workloads(plan: Plan, found: Iterable[Process], online: set[int]) -> list[Workload]:
    """Return the :class:`Workload` list: processes by their NPUs, then the NPUs of the plan that have none, in the order of the plan."""
    together: dict[tuple[str, ...], list[Process]] = {}
    for process in found:
        together.setdefault(tuple(Device.of(npu).title for npu in process.npus), []).append(process)
    result = [Workload(processes[0].npus, processes, online) for _key, processes in sorted(together.items())]
    covered = {title for key in together for title in key}
    return result + [Workload([npu], [], online) for npu in plan["npus"] if Device.of(npu).title not in covered]


class _Counted:
    """Counters of the threads and interrupts of a workload: what they have grown by, and how fast in each window.

    ``numbers`` are those of its interrupts.
    """

    def __init__(self, host: Host, load: Workload, numbers: set[int]) -> None:
        self._host = host
        self._load = load
        self.numbers = numbers
        self.first = self.last = self._look()
        self._sums = dict.fromkeys(self.first, 0)
        self._rates: dict[str, list[float]] = {name: [] for name in self.first}

    def _look(self) -> dict[str, Mapping[Any, int]]:
        per_cpu = interrupts(self._host, self.numbers)
        return {
            "involuntary_switches": switches(self._host, self._load.pids),
            "cpu_migrations": migrations(self._host, self._load.pids),
            "interrupts": per_cpu,
            "interrupts_on_workers": {cpu: count for cpu, count in per_cpu.items() if cpu in self._load.workers},
        }

    def end_window(self, seconds: float) -> None:
        now = self._look()
        for name, counts in now.items():
            more = grown(self.last[name], counts)
            self._sums[name] += more
            self._rates[name].append(more / seconds)
        self.last = now

    def add_metric(self, name: str, source: str, seconds: float, missing: str | None = None) -> None:
        value = None if missing else self._sums[name] / seconds
        self._load.metric(name, value, source, missing, self._rates[name])

    def add_metrics(self, seconds: float) -> dict[str, float]:
        """Add the metrics of a workload's switches and interrupts, and return its interrupts as ``{cpu: per s}``."""
        pids, name = self._load.pids, "involuntary_switches"
        self.add_metric(name, "/proc/<pid>/status", seconds, None if self.last[name] else _ENDED if pids else _NO_PROCESS)
        for name in ("interrupts", "interrupts_on_workers"):
            self.add_metric(name, "/proc/interrupts", seconds, None if self.numbers else "its driver has requested no interrupts")
        first = self.first["interrupts"]
        rates = {cpu: (count - first.get(cpu, 0)) / seconds for cpu, count in self.last["interrupts"].items()}
        return {str(cpu): round(rate, 1) for cpu, rate in sorted(rates.items()) if rate > 0}


class _Others:
    """The time that tasks of others ran on the CPUs of each workload.

    What ran on a CPU is what /proc/stat counts; what a workload's own threads ran is in their schedstat, put down to the CPU where they
    were seen at the end of each interval.
    """

    def __init__(self, host: Host, loads: Sequence[Workload]) -> None:
        self.host = host
        self.loads = loads
        self.seconds = {load.title: 0.0 for load in loads}
        self.sampled_moves = {load.title: 0 for load in loads}
        self.waited = {load.title: 0 for load in loads}
        self.windows: dict[str, list[tuple[float, float, int]]] = {load.title: [(0.0, 0.0, 0)] for load in loads}
        self.busy = busy(host)
        self.runs = {load.title: runs(host, load.pids) for load in loads}

    def sample(self) -> None:
        now = busy(self.host)
        for load in self.loads:
            before, after = self.runs[load.title], runs(self.host, load.pids)
            own = 0
            for key, run in after.items():
                last = before.get(key)
                last = last if last and last.started == run.started else None
                if run.runtime is not None and run.waited is not None:
                    own += run.runtime - (last and last.runtime or 0) if run.cpu in load.cpus else 0
                    self.waited[load.title] += run.waited - (last and last.waited or 0)
                self.sampled_moves[load.title] += bool(last and last.cpu != run.cpu)
            all_tasks = sum(now[cpu] - self.busy.get(cpu, now[cpu]) for cpu in load.cpus if cpu in now)
            self.seconds[load.title] += all_tasks - own / _NANO
            self.runs[load.title] = after
        self.busy = now

    def end_window(self, passed: float) -> None:
        for load in self.loads:
            self.windows[load.title].append((passed, self.seconds[load.title], self.waited[load.title]))

    def add_metrics(self, load: Workload) -> None:
        told = {run.runtime is not None for run in self.runs[load.title].values()}
        source, missing = "/proc/stat, schedstat, sampled", None
        if not self.busy:
            missing = "/proc/stat could not be read"
        elif not load.cpus:
            missing = "no CPU of its pool is online"
        elif False in told:
            missing = "this kernel has no schedstat, so its own time cannot be told from that of others"
        ends = self.windows[load.title]
        spans = [(ends[0], ends[-1]), *zip(ends, ends[1:])]
        share, *shares = [0.0] if missing else [_share(now[1] - last[1], now[0] - last[0], len(load.cpus)) for last, now in spans]
        load.metric("others_share", None if missing else share, source, missing, shares)
        missing = None if True in told else "this kernel has no schedstat" if told else _NO_PROCESS
        waiting, *parts = [(now[2] - last[2]) / 1e6 / (now[0] - last[0]) for last, now in spans]
        load.metric("waiting", None if missing else waiting, "schedstat", missing, parts)


def _share(used: float, seconds: float, cpus: int) -> float:
    return min(100.0, max(0.0, 100.0 * used / (seconds * cpus)))


def _vectors(host: Host, plan: Plan) -> dict[str, set[int]]:
    """Return ``{title: interrupt numbers}`` of the plan's NPUs."""
    names = interrupt_names(host)
    functions: dict[str, list[Mapping[str, Any]]] = {}
    for npu in plan["npus"]:
        functions.setdefault((npu.get("pci") or "").lower(), []).append(npu)
    shares = [share for pci, npus in functions.items() for share in share_out(npus, requested(host, pci, names) if pci else [])]
    return {Device.of(npu).title: {vector.irq for vector in own} for npu, _number, own in shares}


class _Moves:
    """Moves of threads to other CPUs, as exactly as this kernel lets."""

    def __init__(self, host: Host, counted: Mapping[str, _Counted], loads: Iterable[Workload], seconds: float) -> None:
        self.host = host
        self.seconds = seconds
        self.by_perf: dict[str, tuple[int | None, str | None]] = {}
        untold = [load for load in loads if load.pids and not counted[load.title].first["cpu_migrations"]]
        self.helpers = [threading.Thread(target=self._ask_perf, args=(load,), daemon=True) for load in untold]
        for helper in self.helpers:
            helper.start()

    def _ask_perf(self, load: Workload) -> None:
        self.by_perf[load.title] = perf_migrations(self.host, load.pids, self.seconds)

    def add_metrics(self, load: Workload, counted: _Counted, seconds: float, sampled: float) -> None:
        for helper in self.helpers:
            helper.join()
        if load.title not in self.by_perf:
            counted.add_metric("cpu_migrations", "/proc/<pid>/sched", seconds, None if load.pids else _NO_PROCESS)
            return
        moves, why = self.by_perf[load.title]
        if moves is not None:
            load.metric("cpu_migrations", moves / seconds, "perf")
        else:
            text = "%s; at least %.1f per s were seen by sampling" % (why, sampled / seconds)
            load.metric("cpu_migrations", None, "perf", text)


def _add_memory(host: Host, load: Workload) -> list[dict[str, Any]]:
    """Add the metric of a workload's memory and return the tables of its processes."""
    rows, unread = tables(host, load.processes)
    missing = None
    if not load.pids:
        missing = _NO_PROCESS
    elif not rows:
        missing = "; ".join(unread) or _ENDED
    elif not rows[0]["wanted"]:
        missing = "the plan has no memory nodes for it"
    elif unread:
        missing = "; ".join(unread)
    amount = None if missing else sum(row["remote_mib"] for row in rows)
    load.metric("remote_memory", amount, "/proc/<pid>/numa_maps", missing)
    return rows


def measure(
    host: Host,
    plan: Plan,
    wanted: Iterable[Mapping[str, Any]] = (),
    seconds: float = 30,
    interval: float = 1.0,
    clock: Any = time,
) -> dict[str, Any]:
    """Return ``{seconds, workloads, remarks}`` of what happened while about so many seconds passed.

    A workload is ``{title, npus, pool, processes, threads, metrics, interrupts, memory}``: ``metrics`` are ``{value, unit, source,
    missing, windows}`` by the names of :data:`UNITS`, where ``missing`` says why there is no value, and ``windows`` are the values of the
    parts of the time, [] for what was read once; ``interrupts`` are per CPU and s; ``memory`` has the tables of
    :func:`threads.memory.tables`. ``wanted``: see :func:`threads.tasks.groups_of`; processes in pods are measured, too.
    ``interval``: seconds between samples; ``clock`` has ``sleep`` and ``monotonic``. Raises ``ValueError`` for what is not a
    plan, or asks for an NPU that it does not have.
    """
    found = find(host, plan, groups_of(plan, wanted), pods=True)
    loads = workloads(plan, found.processes, read_list(host, CPU_FOLDER + "/online"))
    numbers = _vectors(host, plan)
    own = {load.title: {irq for npu in load.npus for irq in numbers[Device.of(npu).title]} for load in loads}
    counted = {load.title: _Counted(host, load, own[load.title]) for load in loads}
    moves = _Moves(host, counted, loads, seconds)
    others = _Others(host, loads)
    start, passed = clock.monotonic(), 0.0
    for window in range(1, WINDOWS + 1):
        end, last = seconds * window / WINDOWS, passed
        while passed < end:
            clock.sleep(max(0.01, min(interval, end - passed)))
            others.sample()
            passed = clock.monotonic() - start
        if passed > last:
            others.end_window(passed)
            for each in counted.values():
                each.end_window(passed - last)
    rows, remarks = [], list(found.warnings)
    for load in loads:
        moves.add_metrics(load, counted[load.title], passed, others.sampled_moves[load.title])
        others.add_metrics(load)
        per_cpu = counted[load.title].add_metrics(passed)
        memory = _add_memory(host, load)
        ended = [pid for pid in load.pids if not host.exists("/proc/%d" % pid)]
        if ended:
            remarks.append("%s: %d of %d processes ended meanwhile; their counts are lost" % (load.title, len(ended), len(load.pids)))
        rows.append(
            {
                "title": load.title,
                "npus": [npu["id"] for npu in load.npus],
                "pool": compress(load.pool),
                "processes": [{"pid": process.pid, "name": process.name, "found_by": process.found_by} for process in load.processes],
                "threads": len(counted[load.title].last["involuntary_switches"]),
                "metrics": {name: load.metrics[name] for name in UNITS},
                "interrupts": per_cpu,
                "memory": memory,
            }
        )
    return {"seconds": round(passed, 1), "workloads": rows, "remarks": coded("NPU_MEASURE_INCOMPLETE", remarks)}
