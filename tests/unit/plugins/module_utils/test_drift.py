# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cause is the likely one, case by case, and what is reported of a text that somebody changed."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES, KINDS, code_of, result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import differing_lines
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import CAUSES, Cause, Findings, Value, Device
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.drift import cause_of_move


def said(cause):
    return "%s: %s" % cause


LINES = {
    "a value was changed": ("[Slice]\nAllowedCPUs=0-3\n", "[Slice]\nAllowedCPUs=0-7\n", ("AllowedCPUs=0-3", "AllowedCPUs=0-7")),
    "a line is gone": ("a\nb\n", "a\n", ("b", "no such line")),
    "a line was added": ("a\n", "a\nb\n", ("no further line", "b")),
    "many lines": ("a\nb\nc\nd\ne\n", "x\n", ("a / b / c and 2 more lines", "x")),
    "emptied": ("a\n", "", ("a", "no such line")),
    "another order": ("a\nb\n", "b\na\n", ("its lines", "its lines in another order or number")),
    "a line twice": ("a\n", "a\na\n", ("its lines", "its lines in another order or number")),
}


@pytest.mark.parametrize("expected, found, said", LINES.values(), ids=LINES)
def test_what_is_said_of_a_changed_text(expected, found, said):
    assert differing_lines(expected, found) == said


RUNS = "it runs without a policy for the NPUs"
MOVES = {
    # kind, found, everything moved, CPU of the plan that is offline, irqbalance, a process that was told to
    "irqbalance moves no workqueue": (("workqueues", "4", False, "", RUNS), "manual change"),
    "irqbalance moves no thread": (("threads", "0-1,3-7", False, "", RUNS), "manual change"),
    "a process was told to, next to irqbalance": (("interrupts", "4", False, "", RUNS, "process 9"), "in-process binding: process 9"),
    "a process, after a driver": (("interrupts", "4", True, "", RUNS, "process 9"), "in-process binding: process 9"),
    "a process and an offline CPU": (("interrupts", "0-7", False, "2", RUNS, "process 9"), "offline CPU: IRQ CPU 2"),
    "unreadable": (("interrupts", None, False, "", ""), "manual change"),
}


@pytest.mark.parametrize("case, cause", MOVES.values(), ids=MOVES)
def test_why_something_is_on_other_cpus(case, cause):
    kind, found, everything, *seen = case
    entry = {"before": found, "wanted": "2", "state": "changed"}
    assert said(cause_of_move(kind, entry, everything, set(range(8)), *seen)).startswith(cause)


def test_what_is_put_back_no_more_has_a_cause_of_its_own():
    entry = {"before": "0-7", "wanted": "2", "state": "fought over", "text": "was bound 4 times"}
    cause = cause_of_move("interrupts", entry, True, set(range(8)), "2", RUNS)
    assert said(cause) == "fought over: it was bound 4 times; bind when that is settled"


def test_a_differing_object_counts_as_checked_for_its_units_npu():
    found = Findings()
    found.devices = {"npu-0.slice": FIRST}
    found.same("units", "a.timer at boot")
    found.differs("units", "npu-0.slice", "active", "inactive", STOPPED, "npu-0.slice")
    found.differs("units", "b.timer at boot", "enabled", "not enabled", STOPPED, "b.timer")
    assert found.checked == {"units": ["a.timer at boot", "npu-0.slice", "b.timer at boot"]}
    assert [finding.device for finding in found.drift] == [FIRST, None]


STOPPED = Cause("manual change", "stopped by hand")
FIRST = Device("npu", 0, "0000:c1:00.0")
IRQ_ON_25 = ("interrupts", "NPU 0 a", Value(cpus="25"))
POOL, SET = ("cpus", "pool of NPU 0", Value(cpus="0-3")), ("cpusets", "a.slice CPUs", Value(cpus="0-3"))
TASK = Value(cpus="0-7", mems="1", task="77 (python)", more=3)
SENTENCES = [
    # kind, object, expected, found: the texts, and CPUs as data
    (("units", "a.timer", "active", "inactive"), "active", "inactive", None, None),
    ((*IRQ_ON_25, Value(cpus="0-7", irqs="30-45")), "CPUs 25", "CPUs 0-7 (IRQ 30-45)", "25", "0-7"),
    ((*IRQ_ON_25, [Value(cpus="7", irqs="30"), Value(cpus="3", irqs="31")]), "CPUs 25", "CPUs 7 (IRQ 30), CPUs 3 (IRQ 31)", "25", "3,7"),
    ((*IRQ_ON_25, Value("still on CPUs 9", cpus="9", irqs="30")), "CPUs 25", "still on CPUs 9 (IRQ 30)", "25", "9"),
    ((*POOL, Value(cpus="0,2-3")), "0-3 online", "1 offline", "0-3", "0,2-3"),
    ((*POOL, Value(cpus="")), "0-3 online", "0-3 offline", "0-3", ""),
    ((*SET, Value(cpus="0-7")), "0-3", "0-7", "0-3", "0-7"),
    ((*SET, Value(cpus="")), "0-3", "none", "0-3", ""),
    ((*SET, "no cpuset"), "0-3", "no cpuset", "0-3", None),
    (("cpusets", "a.slice memory nodes", Value(mems="0"), Value(mems="0-1")), "0", "0-1", None, None),
    (("processes", "a", Value(cpus="0-3"), TASK), "CPUs 0-3", "CPUs 0-7, memory nodes 1 of 77 (python) and 3 more", "0-3", "0-7"),
]


@pytest.mark.parametrize("given, expected, found, expected_cpus, found_cpus", SENTENCES)
def test_a_sentence_is_made_of_the_data_of_a_finding(given, expected, found, expected_cpus, found_cpus):
    drift = Findings()
    drift.differs(*given, STOPPED)
    result = result_of(drift.drift[0])
    assert [result[key] for key in ("expected", "found", "expected_cpus", "found_cpus")] == [expected, found, expected_cpus, found_cpus]
    code = code_of(given[0], "manual change")
    said = "%s: expected %s, found %s; likely manual change: stopped by hand [%s]" % (given[1], expected, found, code)
    assert result["sentence"] == said


DEVICES = [
    ({"kind": "npu", "id": 3, "pci": "0000:c1:00.0", "slice": "npu-3.slice"}, ("npu", 3, "0000:c1:00.0"), "NPU 3"),
    ({"id": 3, "slice": "gpu-3.slice"}, ("gpu", 3, ""), "GPU 3"),
    ({"kind": "gpu", "id": 3, "pci": None}, ("gpu", 3, ""), "GPU 3"),
    ({"id": 0}, ("npu", 0, ""), "NPU 0"),
]


@pytest.mark.parametrize("entry, device, title", DEVICES)
def test_whose_a_finding_is(entry, device, title):
    assert Device.of(entry) == device and Device.of(entry).title == title


OF_FINDINGS = [
    ("threads", "fought over", "NPU_IRQ_FOUGHT_OVER"),
    ("threads", "changed cpuset", "NPU_THREAD_MOVED"),
    ("npus", "new card", "NPU_CARD_NEW"),
    ("tuning", "manual change", "NPU_TUNING_CHANGED"),
    ("hugepages", "memory shortage", "NPU_HUGEPAGES_SHORT"),
    ("hugepages", "manual change", "NPU_HUGEPAGES_CHANGED"),
]
"""Those that verify.txt has no story of."""


@pytest.mark.parametrize("kind, cause, code", OF_FINDINGS)
def test_the_code_of_a_finding(kind, cause, code):
    assert code_of(kind, cause) == code


def test_every_kind_and_cause_has_exactly_one_code():
    causes_of_codes = [cause for code in CODES.values() for cause in code.causes]
    kinds_of_codes = [kind for code in CODES.values() for kind in code.kinds]
    assert sorted(causes_of_codes) == sorted(set(CAUSES) - {"manual change", "changed cpuset", "interrupted run"})
    assert sorted(kinds_of_codes) == sorted(KINDS)
    of_findings = {code_of(kind, cause) for kind in KINDS for cause in CAUSES}
    assert of_findings == set(CODES) - {"NPU_PLAN_OUTDATED", "NPU_WORK_OUTSIDE_POOL"}
