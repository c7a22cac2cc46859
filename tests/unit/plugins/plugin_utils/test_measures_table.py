# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two measurements of a host side by side: metrics, or the reasons why there are none."""

import random
from statistics import fmean

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._measure import UNITS
from ansible_collections.npu.affinity.plugins.plugin_utils._report.measures_table import NAMES, change
from ansible_collections.npu.affinity.plugins.plugin_utils._report.measures_table import measures_table as table


def side(*rows, seconds=30.0, remarks=()):
    return {"seconds": seconds, "measured_at": "2026-11-20T19:10:02Z", "workloads": list(rows), "remarks": list(remarks)}


def workload(title="NPU 0", pool="0-7", interrupts=None, source="/proc", **values):
    metrics = {
        name: {"value": value, "unit": UNITS[name], "source": source, "missing": None}
        if not isinstance(value := values.get(name, 0.0), str)
        else {"value": None, "unit": UNITS[name], "source": source, "missing": value}
        for name in UNITS
    }
    return {"title": title, "pool": pool, "processes": [{}], "threads": 3, "metrics": metrics, "interrupts": interrupts or {}}


def counted(values):
    """A measurement with windows, or with a value alone."""
    if not isinstance(values, list):
        return side(workload(cpu_migrations=values))
    row = workload(cpu_migrations=round(fmean(values), 1))
    row["metrics"]["cpu_migrations"]["windows"] = values
    return side(row)


BEFORE = [95.0, 100.0, 105.0, 98.0, 102.0, 97.0, 103.0, 99.0, 101.0, 100.0]
ALONE = "no interval, because neither measurement has windows"
NOISY = [10.0, 250.0, 40.0, 160.0, 5.0, 210.0, 30.0, 180.0, 25.0, 20.0]


@pytest.mark.parametrize(
    ("before", "after", "change", "legend"),
    [
        *((200.0, 50.0, "-75 % (1)", ALONE), (50.0, 75.0, "+50 % (1)", ALONE), (0.0, 12.5, "+12.5 (1)", ALONE)),
        *((3.0, 3.0, "none", ""), (3.0, 0.0, "-100 % (1)", ALONE)),
        (BEFORE, [value / 2 for value in BEFORE], "-50 % (-51 to -49)", ""),
        (BEFORE, [0.0] * 10, "-100 % (-100 to -100)", ""),
        (BEFORE, NOISY, "no conclusion (-68 to 56)", "windows of one measurement differ by up to 263 %"),
        ([0.0] * 10, BEFORE, "+100.0 (98 to 102)", ""),
        ([0.0] * 9 + [1.0], [0.0] * 10, "no conclusion (-100 to 0.0)", "windows of one measurement differ by up to 1000 %"),
        ([0.0] * 9 + [1.0], BEFORE, "+99900 % (25025 or more)", ""),
        (BEFORE[:7], [1.0] * 10, "no conclusion (1)", "fewer than 8 windows; measure for longer"),
        (BEFORE, 0.0, "-100 % (1)", "no interval, because one measurement has no windows"),
        (BEFORE, BEFORE, "none", ""),
    ],
)
def test_a_change_needs_windows_that_differ_less(before, after, change, legend):
    lines = table(counted(after), counted(before))
    line = next(line for line in lines if "moves to another CPU" in line)
    values = [f"{fmean(value) if isinstance(value, list) else value:.1f}" for value in (before, after)]
    assert line.split()[6:8] == values and line.split("  ")[-1].strip() == change
    said = " ".join(line.strip() for line in lines)
    assert legend in said and ("measure for longer" in said) is ("for longer" in legend or "differ by" in legend)
    assert ("no interval" in said) is ("no interval" in legend)


DISTRIBUTIONS = {
    "even": lambda chance: chance.gauss(100, 10),
    "rare": lambda chance: sum(chance.random() < 0.02 for _event in range(100)),
    "skewed": lambda chance: chance.lognormvariate(0, 1),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_holds_no_change_where_there_is_none(name):
    chance = random.Random(1)
    sides = [[[DISTRIBUTIONS[name](chance) for _window in range(10)] for _side in range(2)] for _pair in range(200)]
    wrong = sum(change(before, after, in_percent=True).is_change for before, after in sides)
    assert wrong <= 10, wrong


def test_the_whole_of_two_measurements():
    assert list(NAMES) == list(UNITS)
    before = side(workload(waiting=40.0, cpu_migrations="perf is not installed", interrupts={"0": 5.0}), remarks=["1 process ended"])
    after = side(workload(waiting=10.0, cpu_migrations=2.0, interrupts={"6": 2.5, "7": 1.0}), workload("NPU 1", "8-15"))
    assert table(after, before, "bound", "unbound") == [
        "unbound: 30 s until 2026-11-20T19:10:02Z, bound: 30 s until 2026-11-20T19:10:02Z",
        "",
        "NPU 0, pool 0-7: unbound 1 process, 3 threads; bound 1 process, 3 threads",
        "                                      unbound      bound  change (95 %)",
        "  involuntary context switches per s  0.0          0.0    none",
        "  moves to another CPU per s          missing (1)  2.0    -",
        "  waiting for a CPU, ms per s         40.0         10.0   -75 % (2)",
        "  memory on remote NUMA nodes, MiB    0.0          0.0    none",
        "  accelerator interrupts per s        0.0          0.0    none",
        "  of these on CPUs of worker threads  0.0          0.0    none",
        "  pool time used by other tasks, %    0.0          0.0    none",
        "  unbound: accelerator interrupts per s by CPU 0: 5",
        "  bound: accelerator interrupts per s by CPU 6: 2.5, 7: 1",
        "  (1) unbound: perf is not installed",
        "  (2) no interval, because neither measurement has windows",
        "",
        "NPU 1, pool 8-15: not in unbound; bound 1 process, 3 threads",
        "                                      unbound  bound  change (95 %)",
        *(f"  {name:34}  -        0.0    -" for name in NAMES.values()),
        "",
        "unbound: 1 process ended",
    ]


def test_the_memory_of_each_process_stands_below_by_node():
    memory = {"pid": 4711, "name": "VLLM::Worker", "npus": [0], "wanted": "6", "mib": {"0": 812.4, "6": 20480.0}, "remote_mib": 812.4}
    unplanned = {**memory, "pid": 4712, "wanted": "", "mib": {}}
    lines = table(side({**workload(), "memory": [memory, unplanned]}))
    assert " ".join(line.strip() for line in lines[-3:]) == (
        "after: memory of process 4711 (VLLM::Worker) in MiB by NUMA node 0: 812.4, 6: 20480; belongs on 6 "
        "after: memory of process 4712 (VLLM::Worker) in MiB by NUMA node none"
    )


IDLE = [workload(f"{kind} {number}", others_share="not counted") for kind in ("NPU", "GPU") for number in range(3)]
UNREAD = workload("NPU 1", "8-15", others_share="/proc/stat could not be read")
IDLE_LINES = [
    (
        [workload("NPU 1", "8-15", others_share=4.0)],
        [UNREAD],
        "NPU 1, pool 8-15: no process; accelerator interrupts per s 0.0 -> 0.0; pool time used by other tasks, % 4.0 -> missing "
        "(/proc/stat could not be read)",
    ),
    (
        IDLE,
        IDLE,
        "NPU 0-2, GPU 0-2: no process; accelerator interrupts per s 0.0 -> 0.0; pool time used by other tasks, % missing (not counted)",
    ),
]


@pytest.mark.parametrize(("before", "after", "text"), IDLE_LINES, ids=["one", "several alike"])
def test_npus_without_processes_have_a_line_below(before, after, text):
    before, after = ([{**row, "processes": []} for row in rows] for rows in (before, after))
    lines = table(side(workload("NPU 9"), *after), side(*before))
    assert " ".join(line.strip() for line in lines[len(lines) - lines[::-1].index("") :]) == text


def test_a_reason_of_both_sides_stands_once():
    lines = table(side(workload(waiting="no schedstat")), side(workload(waiting="no schedstat")))
    assert [line for line in lines if line.startswith("  (")] == ["  (1) no schedstat"]
    lines = table(side(workload(source="perf", waiting=1.0)), side(workload(waiting=2.0)))
    assert next(line for line in lines if "waiting" in line).endswith("1.0    - (1)")
    assert "  (1) counted in different ways, /proc and perf, so not compared" in lines


def test_another_pool_then_is_shown():
    assert table(side(workload(pool="8-15")), side(workload()))[2].startswith("NPU 0, pool 0-7 (before), 8-15 (after): ")
