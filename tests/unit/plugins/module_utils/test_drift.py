# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cause is the likely one, case by case, and what is reported of a text that somebody changed."""

from __future__ import annotations


import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES, KINDS, code_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.files import cause_of, differing_lines
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import CAUSES, Cause, Findings, Value
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import moves
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.drift import Seen, cause_of_set
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device


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


@pytest.mark.parametrize("expected, found, said", list(LINES.values()), ids=list(LINES))
def test_what_is_said_of_a_changed_text(expected, found, said):
    assert differing_lines(expected, found) == said


FILES = {
    "missing": (None, "text", False, "manual change: removed"),
    "left over": ("text", None, True, "manual change: added since the last bind"),
    "replaced": ("theirs", "text", False, "manual change: another file took its place"),
    "changed": ("other", "text", True, "manual change: changed by hand"),
}


@pytest.mark.parametrize("before, after, ours, cause", list(FILES.values()), ids=list(FILES))
def test_why_a_file_differs(before, after, ours, cause):
    assert said(cause_of(before, after, ours)).startswith(cause)


OVERRIDE = "/run/systemd/system.control/npu-0.slice.d/50-AllowedCPUs.conf"
SETS = {
    "set-property": ("0-3", "0-7", {"overrides": [OVERRIDE], "edited": True}, "manual change: overridden by " + OVERRIDE),
    "all CPUs offline": ("", "0-7", {}, "offline CPU"),
    "edited and reloaded": ("0-3", "0-2", {"edited": True}, "manual change: its unit file was changed"),
    "not reloaded": ("0-3", "0-7", {"unread": True}, "changed cpuset: systemd has not read the unit file"),
    "no controller": ("0-3", None, {}, "changed cpuset: the cpuset controller is off"),
    "narrow parent": ("0-3", "0-1", {"above": ("npu.slice", {0, 1, 8})}, "changed cpuset: npu.slice above it"),
    "parent is not it": ("0-3", "0-2", {"above": ("npu.slice", {0, 1, 8})}, "changed cpuset: something other than systemd"),
    "parent without a set": ("0-3", "0-2", {"above": ("npu.slice", None)}, "changed cpuset: something other than systemd"),
}


@pytest.mark.parametrize("wanted, found, known, cause", list(SETS.values()), ids=list(SETS))
def test_why_the_kernel_grants_another_set(wanted, found, known, cause):
    granted = None if found is None else set(expand(found))
    assert said(cause_of_set(set(expand(wanted)), granted, Seen("npu-0.slice", **known))).startswith(cause)


RUNS = "it runs without a policy for the NPUs"
MOVES = {
    # kind, found, everything moved, CPU of the plan that is offline, irqbalance, a process that was told to
    "its CPU is offline now": (("interrupts", "0-7", False, "2", RUNS), "offline CPU: IRQ CPU 2"),
    "its CPU was offline": (("interrupts", "0-1,3-7", False, "", RUNS), "offline CPU: CPU 2 was offline for a while"),
    "all of the driver's moved": (("interrupts", "0-7", True, "", RUNS), "driver reload"),
    "with the workqueue": (("workqueues", "0-7", True, "", RUNS), "driver reload"),
    "an interrupt alone, with irqbalance": (("interrupts", "4", False, "", RUNS), "irqbalance: it runs"),
    "an interrupt alone, without": (("interrupts", "4", False, "", ""), "manual change"),
    "irqbalance moves no workqueue": (("workqueues", "4", False, "", RUNS), "manual change"),
    "irqbalance moves no thread": (("threads", "0-1,3-7", False, "", RUNS), "manual change"),
    "a process was told to, next to irqbalance": (("interrupts", "4", False, "", RUNS, "process 9"), "in-process binding: process 9"),
    "a process, after a driver": (("interrupts", "4", True, "", RUNS, "process 9"), "in-process binding: process 9"),
    "a process and an offline CPU": (("interrupts", "0-7", False, "2", RUNS, "process 9"), "offline CPU: IRQ CPU 2"),
    "unreadable": (("interrupts", None, False, "", ""), "manual change"),
}


@pytest.mark.parametrize("case, cause", list(MOVES.values()), ids=list(MOVES))
def test_why_something_is_on_other_cpus(case, cause):
    kind, found, everything, *seen = case
    entry = {"before": found, "wanted": "2", "state": "changed"}
    assert said(moves.cause_of_move(kind, entry, everything, set(range(8)), moves.Seen(*seen))).startswith(cause)


def test_what_is_put_back_no_more_has_a_cause_of_its_own():
    entry = {"before": "0-7", "wanted": "2", "state": "fought over", "text": "was bound 4 times"}
    cause = moves.cause_of_move("interrupts", entry, True, set(range(8)), moves.Seen("2", RUNS))
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
SENTENCES = [
    # kind, object, expected, found, device: the texts, and CPUs as data
    (("units", "a.timer", "active", "inactive"), "active", "inactive", None, None),
    (("interrupts", "NPU 0 a", Value(cpus="25"), Value(cpus="0-7", irqs="30-45")), "CPUs 25", "CPUs 0-7 (IRQ 30-45)", "25", "0-7"),
    (
        ("interrupts", "NPU 0 a", Value(cpus="25"), [Value(cpus="7", irqs="30"), Value(cpus="3", irqs="31")]),
        "CPUs 25",
        "CPUs 7 (IRQ 30), CPUs 3 (IRQ 31)",
        "25",
        "3,7",
    ),
    (
        ("interrupts", "NPU 0 a", Value(cpus="25"), Value("still on CPUs 9", cpus="9", irqs="30")),
        "CPUs 25",
        "still on CPUs 9 (IRQ 30)",
        "25",
        "9",
    ),
    (("cpus", "pool of NPU 0", Value(cpus="0-3"), Value(cpus="0,2-3")), "0-3 online", "1 offline", "0-3", "0,2-3"),
    (("cpus", "pool of NPU 0", Value(cpus="0-3"), Value(cpus="")), "0-3 online", "0-3 offline", "0-3", ""),
    (("cpusets", "npu-0.slice CPUs", Value(cpus="0-3"), Value(cpus="0-7")), "0-3", "0-7", "0-3", "0-7"),
    (("cpusets", "npu-0.slice CPUs", Value(cpus="0-3"), Value(cpus="")), "0-3", "none", "0-3", ""),
    (("cpusets", "npu-0.slice CPUs", Value(cpus="0-3"), "no cpuset"), "0-3", "no cpuset", "0-3", None),
    (("cpusets", "npu-0.slice memory nodes", Value(mems="0"), Value(mems="0-1")), "0", "0-1", None, None),
    (
        ("processes", "processes of npu-0.slice", Value(cpus="0-3", mems="0"), Value(cpus="0-7", mems="1", task="77 (python)", more=3)),
        "CPUs 0-3, memory nodes 0",
        "CPUs 0-7, memory nodes 1 of 77 (python) and 3 more",
        "0-3",
        "0-7",
    ),
]


@pytest.mark.parametrize("given, expected, found, expected_cpus, found_cpus", SENTENCES)
def test_a_sentence_is_made_of_the_data_of_a_finding(given, expected, found, expected_cpus, found_cpus):
    drift = Findings()
    drift.devices["npu-0.slice"] = FIRST
    drift.differs(*given, STOPPED, "npu-0.slice")
    code = code_of(given[0], "manual change")
    assert result_of(drift.drift[0]) == {
        "code": code,
        "kind": given[0],
        "object": given[1],
        "expected": expected,
        "found": found,
        "cause": "manual change",
        "remark": "stopped by hand",
        "npu": 0,
        "device": "npu",
        "pci": "0000:c1:00.0",
        "unit": "npu-0.slice",
        "expected_cpus": expected_cpus,
        "found_cpus": found_cpus,
        "sentence": "%s: expected %s, found %s; likely manual change: stopped by hand [%s]" % (given[1], expected, found, code),
    }


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
    ("interrupts", "manual change", "NPU_IRQ_MOVED"),
    ("workqueues", "manual change", "NPU_IRQ_MOVED"),
    ("interrupts", "irqbalance", "NPU_IRQBALANCE_ACTIVE"),
    ("threads", "fought over", "NPU_IRQ_FOUGHT_OVER"),
    ("interrupts", "kernel", "NPU_IRQ_STUCK"),
    ("interrupts", "in-process binding", "NPU_WORKER_BINDS_ITSELF"),
    ("threads", "changed cpuset", "NPU_THREAD_MOVED"),
    ("device_share", "driver reload", "NPU_DRIVER_RELOADED"),
    ("device_share", "manual change", "NPU_DEVICE_SHARE_CHANGED"),
    ("device_share", "npu-smi", "NPU_SMI_SILENT"),
    ("files", "manual change", "NPU_FILE_CHANGED"),
    ("units", "manual change", "NPU_UNIT_CHANGED"),
    ("units", "failed unit", "NPU_UNIT_FAILED"),
    ("npus", "lost card", "NPU_CARD_LOST"),
    ("npus", "new card", "NPU_CARD_NEW"),
    ("cpus", "offline CPU", "NPU_CPU_OFFLINE"),
    ("cpusets", "changed cpuset", "NPU_CPUSET_CHANGED"),
    ("services", "not restarted", "NPU_NOT_RESTARTED"),
    ("services", "manual change", "NPU_SERVICE_CHANGED"),
    ("processes", "changed cpuset", "NPU_SERVICE_CHANGED"),
    ("tuning", "manual change", "NPU_TUNING_CHANGED"),
    ("hugepages", "memory shortage", "NPU_HUGEPAGES_SHORT"),
    ("hugepages", "manual change", "NPU_HUGEPAGES_CHANGED"),
    ("plan", "never bound", "NPU_NEVER_BOUND"),
    ("plan", "manual change", "NPU_PLAN_CHANGED"),
    ("plan", "changed settings", "NPU_SETTINGS_CHANGED"),
]


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
