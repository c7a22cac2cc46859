# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cause is the likely one, case by case, and what is said of a text that somebody changed."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._drift.findings import (
    Findings,
    cause_of_cpuset,
    cause_of_file,
    cause_of_move,
    differing_lines,
)

LINES = [
    ("a value was changed", "[Slice]\nAllowedCPUs=0-3\n", "[Slice]\nAllowedCPUs=0-7\n", ("AllowedCPUs=0-3", "AllowedCPUs=0-7")),
    ("a line is gone", "a\nb\n", "a\n", ("b", "no such line")),
    ("a line was added", "a\n", "a\nb\n", ("no further line", "b")),
    ("many lines", "a\nb\nc\nd\ne\n", "x\n", ("a / b / c and 2 more lines", "x")),
    ("emptied", "a\n", "", ("a", "no such line")),
    ("another order", "a\nb\n", "b\na\n", ("its lines", "its lines in another order or number")),
    ("a line twice", "a\n", "a\na\n", ("its lines", "its lines in another order or number")),
]


@pytest.mark.parametrize("expected, found, said", [row[1:] for row in LINES], ids=[row[0] for row in LINES])
def test_what_is_said_of_a_changed_text(expected, found, said):
    assert differing_lines(expected, found) == said


FILES = [
    ("missing", None, "text", False, "manual change: removed"),
    ("left over", "text", None, True, "changed settings: left from an earlier bind"),
    ("replaced", "theirs", "text", False, "manual change: another file took its place"),
    ("changed", "other", "text", True, "manual change: changed by hand"),
]


@pytest.mark.parametrize("before, after, ours, cause", [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_why_a_file_differs(before, after, ours, cause):
    assert cause_of_file(before, after, ours).startswith(cause)


OVERRIDE = "/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf"
SETS = [
    ("set-property", "0-3", "0-7", {"overrides": [OVERRIDE], "edited": True}, "manual change: overridden by " + OVERRIDE),
    ("all CPUs offline", "", "0-7", {}, "offline CPU"),
    ("edited and reloaded", "0-3", "0-2", {"edited": True}, "manual change: its unit file was changed"),
    ("not reloaded", "0-3", "0-7", {"unread": True}, "changed cpuset: systemd has not read the unit file"),
    ("no controller", "0-3", None, {}, "changed cpuset: the cpuset controller is off"),
    ("narrow parent", "0-3", "0-1", {"parent": ("npu.slice", {0, 1, 8})}, "changed cpuset: npu.slice above it"),
    ("parent is not it", "0-3", "0-2", {"parent": ("npu.slice", {0, 1, 8})}, "changed cpuset: something other than systemd"),
    ("parent without a set", "0-3", "0-2", {"parent": ("npu.slice", None)}, "changed cpuset: something other than systemd"),
]


@pytest.mark.parametrize("wanted, found, known, cause", [row[1:] for row in SETS], ids=[row[0] for row in SETS])
def test_why_the_kernel_grants_another_set(wanted, found, known, cause):
    granted = None if found is None else set(expand(found))
    assert cause_of_cpuset("npu-0.slice", set(expand(wanted)), granted, **known).startswith(cause)


RUNS = "it runs, and nothing tells it to leave the NPUs alone"
MOVES = [
    # kind, found, everything moved, CPU of the plan that is offline, irqbalance
    ("its CPU is offline now", ("interrupts", "0-7", False, "2", RUNS), "offline CPU: IRQ CPU 2"),
    ("its CPU was offline", ("interrupts", "0-1,3-7", False, "", RUNS), "offline CPU: CPU 2 was offline for a while"),
    ("all of the driver's moved", ("interrupts", "0-7", True, "", RUNS), "driver reload"),
    ("with the workqueue", ("workqueues", "0-7", True, "", RUNS), "driver reload"),
    ("an interrupt alone, with irqbalance", ("interrupts", "4", False, "", RUNS), "irqbalance: it runs"),
    ("an interrupt alone, without", ("interrupts", "4", False, "", ""), "manual change"),
    ("irqbalance moves no workqueue", ("workqueues", "4", False, "", RUNS), "manual change"),
    ("irqbalance moves no thread", ("threads", "0-1,3-7", False, "", RUNS), "manual change"),
    ("unreadable", ("interrupts", None, False, "", ""), "manual change"),
]


@pytest.mark.parametrize("case, cause", [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_why_something_is_on_other_cpus(case, cause):
    kind, found, everything, offline, irqbalance = case
    entry = {"before": found, "wanted": "2"}
    assert cause_of_move(kind, entry, everything, set(range(8)), offline, irqbalance).startswith(cause)


def test_an_object_that_differs_counts_as_checked():
    findings = Findings()
    findings.same("units", "a.timer at boot")
    findings.differs("units", "b.timer at boot", "enabled", "not enabled", "manual change", unit="b.timer")
    assert findings.checked == {"units": ["a.timer at boot", "b.timer at boot"]}
    assert findings.drift == [
        {
            "kind": "units",
            "object": "b.timer at boot",
            "expected": "enabled",
            "found": "not enabled",
            "cause": "manual change",
            "npu": None,
            "unit": "b.timer",
        }
    ]
