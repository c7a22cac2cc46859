# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of a host side by side, and how certain a change is. Only metrics are shown: a missing value is shown with the reason.

A bootstrap: means of values drawn again and again from the windows of both sides (Efron and Tibshirani, "An Introduction to the Bootstrap",
chapter 13). With ten windows, the percentiles of such means cover too little; those taken here cover 95 %.
"""

from __future__ import annotations

import math
import random
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.table import REMARK_WIDTH, columns, count

NAMES = {
    "involuntary_switches": "involuntary context switches per s",
    "cpu_migrations": "moves to another CPU per s",
    "waiting": "waiting for a CPU, ms per s",
    "remote_memory": "memory on remote NUMA nodes, MiB",
    "interrupts": "accelerator interrupts per s",
    "interrupts_on_workers": "of these on CPUs of worker threads",
    "others_share": "pool time used by other tasks, %",
}
NO_CONCLUSION = (
    "no conclusion: windows of one measurement differ by up to {:.0f} %, and the interval includes no change; measure for longer, or on a "
    "quieter machine"
)


def measures_table(
    measured: Mapping[str, Any], before: Mapping[str, Any] | None = None, label: str = "after", before_label: str = "before"
) -> list[str]:
    """Return the lines of a table for each workload: its metrics, and those of ``before`` next to them with the change.

    A change stands with its interval of 95 %, unless this includes no change, or with the reason why it has none. Both are results of
    module ``measure_info``. Raises ``ValueError`` when one is not.
    """
    sides = [(before_label, before)] if before is not None else []
    sides.append((label, measured))
    for name, side in sides:
        if not isinstance(side, Mapping) or not isinstance(side.get("workloads"), Sequence):
            raise ValueError(f"{name}: expected a result of npu.affinity.measure_info with 'workloads'; got {type(side).__name__}")
    lines = [", ".join(f"{name}: {side['seconds']:g} s until {side.get('measured_at') or '?'}" for name, side in sides)]
    titles = list(dict.fromkeys(row["title"] for _name, side in reversed(sides) for row in side["workloads"]))
    idle: dict[str, dict[str, str]] = {}
    for title in titles:
        rows: list[Any] = [(name, next((row for row in side["workloads"] if row["title"] == title), {})) for name, side in sides]
        if any(row and row["processes"] for _name, row in rows):
            lines += ["", *_workload(title, rows)]
        else:
            idle.setdefault(_idle(rows), {})[title] = next(row["pool"] for _name, row in reversed(rows) if row)
    lines += [""] * bool(idle) + [line for text, pools in idle.items() for line in _wrapped("", f"{_titles(pools)}: no process; {text}")]
    remarks = [f"{name}: {remark}" for name, side in sides for remark in side.get("remarks") or ()]
    return lines + ([""] if remarks else []) + [line for remark in remarks for line in _wrapped("", remark)]


def _idle(sides: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return what there is to say of an NPU without processes: its other metrics."""
    cells = []
    for key in ("interrupts", "others_share"):
        metrics = [row["metrics"][key] for _name, row in sides if row]
        values = ["missing" if metric["value"] is None else f"{metric['value']:.1f}" for metric in metrics]
        reasons = dict.fromkeys(metric["missing"] for metric in metrics if metric["missing"])
        why = f" ({'; '.join(reasons)})" if reasons else ""
        cells.append(f"{NAMES[key]} {' -> '.join(values[:1] if set(values) == {'missing'} else values)}{why}")
    return "; ".join(cells)


def _titles(pools: Mapping[str, str]) -> str:
    """Return NPUs of which the same is to be said: one with its pool, several by their numbers."""
    if len(pools) == 1:
        ((title, pool),) = pools.items()
        return f"{title}, pool {pool}"
    kinds: dict[str, list[int]] = {}
    for title in pools:
        kind, _space, number = title.rpartition(" ")
        if not number.isdecimal():
            return ", ".join(pools)
        kinds.setdefault(kind, []).append(int(number))
    return ", ".join(f"{kind} {compress(numbers)}" for kind, numbers in kinds.items())


def _workload(title: str, sides: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    counts = [
        f"{name} {count(len(row['processes']), 'process', 'processes')}, {count(row['threads'], 'thread')}" if row else f"not in {name}"
        for name, row in sides
    ]
    pools = {row["pool"]: name for name, row in sides if row}
    shown = pools if len(pools) < 2 else [f"{pool} ({name})" for pool, name in pools.items()]
    yield f"{title}, pool {', '.join(shown)}: {'; '.join(counts)}"
    notes: list[str] = []
    table = [["", *(name for name, _row in sides), *(["change (95 %)"] if len(sides) > 1 else [])]]
    unclear: list[float] = []
    for key, name in NAMES.items():
        metrics = [(row.get("metrics") or {}).get(key) for _name, row in sides]
        reasons = {metric["missing"] for metric in metrics if metric}
        cells = [_cell(metric, f"{side}: " if len(reasons) > 1 else "", notes) for metric, (side, _row) in zip(metrics, sides, strict=True)]
        table.append([name, *cells, *([_change(metrics, notes, unclear)] if len(sides) > 1 else [])])
    yield from (f"  {line}" for line in columns(table))
    if unclear:
        yield from _wrapped("  ", NO_CONCLUSION.format(max(unclear)))
    for side, row in sides:
        if row.get("interrupts"):
            rates = ", ".join(f"{cpu}: {rate:g}" for cpu, rate in row["interrupts"].items())
            yield from _wrapped("  ", f"{side}: accelerator interrupts per s by CPU {rates}")
        for memory in row.get("memory") or ():
            nodes = ", ".join(f"{node}: {mib:.10g}" for node, mib in memory["mib"].items()) or "none"
            wanted = f"; belongs on {memory['wanted']}" if memory["wanted"] else ""
            process = f"memory of process {memory['pid']} ({memory['name']}) in MiB by NUMA node"
            yield from _wrapped("  ", f"{side}: {process} {nodes}{wanted}")
    for number, note in enumerate(notes, 1):
        yield from _wrapped("  ", f"({number}) {note}")


def _cell(metric: Mapping[str, Any] | None, side: str, notes: list[str]) -> str:
    if metric is None:
        return "-"
    return f"missing {_note(side + metric['missing'], notes)}" if metric["value"] is None else f"{metric['value']:.1f}"


def _note(text: str, notes: list[str]) -> str:
    if text not in notes:
        notes.append(text)
    return f"({notes.index(text) + 1})"


def _change(metrics: Sequence[Mapping[str, Any] | None], notes: list[str], unclear: list[float]) -> str:
    earlier, later = metrics
    if earlier is None or later is None or earlier["value"] is None or later["value"] is None:
        return "-"
    if earlier["source"] != later["source"]:
        text = f"counted in different ways, {earlier['source']} and {later['source']}, so not compared"
        return f"- {_note(text, notes)}"
    if earlier["value"] == later["value"]:
        return "none"
    before, after = (metric.get("windows") or () for metric in (earlier, later))
    if before and after:
        if min(len(before), len(after)) < FEWEST:
            return f"no conclusion {_note(f'fewer than {FEWEST} windows; measure for longer', notes)}"
        interval = change(before, after, in_percent=bool(earlier["value"]))
        if not interval.is_change:
            unclear.append(max(map(spread, (before, after))))
            return f"no conclusion ({interval})"
        certainty = f"({interval})"
    else:
        without = "one measurement has no" if before or after else "neither measurement has"
        certainty = _note(f"no interval, because {without} windows", notes)
    if not earlier["value"]:
        return f"{later['value'] - earlier['value']:+.1f} {certainty}"
    return f"{100 * (later['value'] / earlier['value'] - 1):+.0f} % {certainty}"


def _wrapped(indent: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, width=REMARK_WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False
    )


FEWEST = 8
"""Windows of each side below which nothing is concluded."""
_DRAWS = 1000
_OUTSIDE = 10
"""Draws on each side of the interval."""


class Interval(NamedTuple):
    """Where the change lies with a probability of 95 %: in percent, or in the metric's unit."""

    low: float
    high: float

    @property
    def is_change(self) -> bool:
        return not self.low <= 0 <= self.high

    def __str__(self) -> str:
        low, high = (f"{bound:.0f}" if abs(bound) >= 10 else f"{bound:.1f}" for bound in self)
        return f"{low} or more" if self.high == math.inf else f"{low} to {high}"


def change(before: Sequence[float], after: Sequence[float], in_percent: bool) -> Interval:
    """Return the change of the mean in percent, or in the metric's unit."""
    generator = random.Random(0)  # the same windows always give the same interval
    changes = []
    for _draw in range(_DRAWS):
        earlier, later = (statistics.fmean(generator.choices(windows, k=len(windows))) for windows in (before, after))
        ratio = 100 * (later / earlier - 1) if earlier else math.inf if later else 0.0
        changes.append(ratio if in_percent else later - earlier)
    changes.sort()
    return Interval(changes[_OUTSIDE], changes[-1 - _OUTSIDE])


def spread(windows: Sequence[float]) -> float:
    """Return by how much windows of one measurement differ, in percent of their mean."""
    mean = statistics.fmean(windows)
    return 100 * (max(windows) - min(windows)) / mean if mean else 0.0
