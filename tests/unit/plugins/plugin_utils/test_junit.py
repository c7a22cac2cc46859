# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports as a CI system reads them: parsed back, counted, and with whatever text a host comes up with."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._report.junit import junit
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Cause, Findings, Value
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device


def differs(kind, name, expected, found, cause, device=None):
    """A drift as module binding_info returns it."""
    findings = Findings()
    findings.differs(kind, name, expected, found, cause, device)
    return result_of(findings.drift[0])


FIRST = Device("npu", 0, "0000:c1:00.0")
RUNS = Cause("irqbalance", "it runs without a policy for the NPUs")
MOVED = differs("interrupts", "NPU 0 cq_update_irq", Value(cpus="25"), Value(cpus="0-47", irqs="2754-2769"), RUNS, FIRST)
CHECKED = {"files": ["/etc/systemd/system/npu-0.slice"], "interrupts": ["NPU 0 cq_update_irq", "NPU 0 sq_send_trigger_irq"]}


def report(result, host="node1"):
    """The suite of a report, as a dictionary of test cases by class and name."""
    root = ElementTree.fromstring(junit(result, host).encode())
    (suite,) = root
    assert root.tag == "testsuites" and suite.tag == "testsuite" and suite.get("name") == host
    cases = {(case.get("classname"), case.get("name")): list(case) for case in suite}
    outcomes = [outcome.tag for found in cases.values() for outcome in found]
    for element in (root, suite):
        assert int(element.get("tests")) == len(suite) == len(cases)
        assert int(element.get("failures")) == outcomes.count("failure")
        assert int(element.get("errors")) == outcomes.count("error")
        assert int(element.get("skipped")) == outcomes.count("skipped")
    return cases


def test_every_object_is_a_test_case_and_a_drift_a_failure():
    cases = report({"bound": True, "drift": [MOVED], "checked": CHECKED, "remarks": []})
    assert list(cases) == [
        ("node1.files", "/etc/systemd/system/npu-0.slice"),
        ("node1.interrupts", "NPU 0 cq_update_irq"),
        ("node1.interrupts", "NPU 0 sq_send_trigger_irq"),
    ]
    (failure,) = cases["node1.interrupts", "NPU 0 cq_update_irq"]
    line = (
        "NPU 0 cq_update_irq: expected CPUs 25, found CPUs 0-47 (IRQ 2754-2769); likely irqbalance: "
        + RUNS.remark
        + " [NPU_IRQBALANCE_ACTIVE]"
    )
    assert (failure.tag, failure.get("type"), failure.get("message")) == ("failure", "irqbalance", line)
    assert failure.text == f"node1: {line}\nIt belongs to NPU 0 (PCI 0000:c1:00.0)."
    assert sum(map(len, cases.values())) == 1


DEVICES = [(FIRST, "NPU 0 (PCI 0000:c1:00.0)"), (Device("gpu", 3, ""), "GPU 3"), (None, None)]


@pytest.mark.parametrize("device, title", DEVICES)
def test_a_failure_says_whose_it_is(device, title):
    drift = differs("cpusets", "a.service CPUs", Value(cpus="0-3"), Value(cpus="0"), RUNS, device)
    ((failure,),) = report({"bound": True, "drift": [drift], "checked": {"cpusets": ["a.service CPUs"]}}).values()
    assert failure.text.splitlines()[1:] == ([f"It belongs to {title}."] if title else [])


UNBOUND = differs("plan", "plan.json", "the plan in force", "no such file", Cause("never bound", "bind the host"))
OUTCOMES = [
    ({"bound": True, "drift": [], "checked": CHECKED}, []),
    ({"bound": False, "drift": [], "checked": {}}, [("skipped", None, "The host was never bound.")]),
    ({"bound": False, "drift": [UNBOUND], "checked": {"plan": ["plan.json"]}}, [("failure", "never bound", UNBOUND["sentence"])]),
    ({"msg": "'npu-smi' did not answer", "failed": True}, [("error", "npu.affinity.binding_info", "'npu-smi' did not answer")]),
]


@pytest.mark.parametrize("result, outcomes", OUTCOMES, ids=["clean", "never bound", "to be bound", "not comparable"])
def test_what_else_a_comparison_ends_with(result, outcomes):
    found = [(element.tag, element.get("type"), element.get("message")) for elements in report(result).values() for element in elements]
    assert found == outcomes


@pytest.mark.parametrize("found", ["<a&b>\"'", "bell \a and escape \x1b[0m", "half of a pair \ud800", "\ufffe", "tab\tand 中文", "]]>"])
def test_texts_of_any_kind_stay_well_formed(found):
    cases = report(
        {"bound": True, "drift": [differs("interrupts", MOVED["object"], "requested", found, RUNS, FIRST)], "checked": CHECKED},
        host="nöde <1>",
    )
    (failure,) = cases["nöde <1>.interrupts", "NPU 0 cq_update_irq"]
    shown = failure.get("message").partition("found ")[2].partition("; likely")[0]
    readable = "".join(character for character in found if character.isprintable() and character != "\ufffe")
    assert [character for character in readable if character not in shown] == []


@pytest.mark.parametrize("wrong", [None, [], {}, {"drift": []}, "text"])
def test_what_is_no_comparison_is_refused(wrong):
    with pytest.raises(ValueError, match="expected what npu.affinity.binding_info returned"):
        junit(wrong, "node1")
