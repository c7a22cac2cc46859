# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of an export, and the JUnit report of a comparison."""

import csv
import io
import json
from xml.etree import ElementTree

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Cause, Device, Findings, Value
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._report.export import COLUMNS, junit, rows, table
from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import timeline

TOPOLOGY = host([1, 0], nodes=2, cores=16, nodes_per_socket=1)
for npu in TOPOLOGY["npus"]:
    npu |= {"phy_id": npu["id"], "name": "910B3", "memory_mib": 65536}


def test_a_row_for_each_npu_in_a_stable_order():
    made = plan(TOPOLOGY, strategy="even_split")
    bound = {**TOPOLOGY, "applied": {**made, "npus": [{**npu, "pool": "0-3"} for npu in made["npus"]]}}
    records = [{"host": "b", "topology": TOPOLOGY, "plan": made}, {"host": "a", "topology": bound}, {"host": "d"}]
    records.append({"host": "c", "topology": TOPOLOGY, "refused": "Too few CPUs."})
    found = rows(records)
    assert [(row["host"], row["id"], row["plan"], row["pool"], row["local"]) for row in found] == [
        ("a", 0, "in force", "0-3", 0.0),
        ("a", 1, "in force", "0-3", 1.0),
        ("b", 0, "planned", "16-31", 1.0),
        ("b", 1, "planned", "0-15", 1.0),
        *(("c", number, None, None, None) for number in (0, 1)),
    ]
    assert all(tuple(row) == COLUMNS for row in found)
    assert rows(records[::-1]) == found
    assert json.loads(table(records, "json")) == found
    text = table(records, "csv")
    assert text.splitlines()[:4:3] == [
        "host,kind,id,card,chip,phy_id,name,family,pci,numa,memory_mib,plan,strategy,pool,irq,main,acl,release,mems,memory_nodes,slice,local",
        "b,npu,0,0,0,0,910B3,a2,0000:01:00.0,1,65536,planned,even_split,16-31,16-17,18-29,30,31,1,1,npu-0.slice,1.0",
    ]
    read = list(csv.DictReader(io.StringIO(text)))
    assert read == [{name: "" if value is None else str(value) for name, value in row.items()} for row in found]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_computes_nothing(text):
    record = {"host": "a", "topology": {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][0], "name": text}]}}
    assert next(csv.DictReader(io.StringIO(table([record], "csv"))))["name"] == "'" + text
    assert json.loads(table([record], "json"))[0]["name"] == text


def drifted(host, *causes, **more):
    return {"host": host, "bound": True, "drift": [{"cause": cause} for cause in causes], **more}


def test_drift_over_time_is_counted_by_cause_and_in_order():
    later = [drifted("x", time="2026-11-21T02:00:00Z"), drifted("y", time="2026-11-21T02:00:01Z")]
    first = [drifted("x", "irqbalance", "irqbalance", time="2026-11-20T02:00:00Z"), {"host": "y", "msg": "broken"}]
    undated = [drifted("x", "lost card"), {"host": "z", "bound": False, "drift": []}, {"host": "u", "unreachable": "no"}]
    runs = [{"name": name, "records": records} for name, records in (("b", later), ("a", first), ("c", undated), ("d", []))]
    assert [tuple(run.values()) for run in timeline(runs)] == [
        ("2026-11-20 02:00:00 UTC", 2, 1, 1, 2, {"irqbalance": 2}),
        ("2026-11-21 02:00:01 UTC", 2, 2, 0, 0, {}),
        ("c", 3, 1, 1, 1, {"lost card": 1}),
        ("d", 0, 0, 0, 0, {}),
    ]


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
    line = f"NPU 0 cq_update_irq: expected CPUs 25, found CPUs 0-47 (IRQ 2754-2769); likely irqbalance: {RUNS.remark}"
    line += " [NPU_IRQBALANCE_ACTIVE]"
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
    drift = [differs("interrupts", MOVED["object"], "requested", found, RUNS, FIRST)]
    cases = report({"bound": True, "drift": drift, "checked": CHECKED}, host="nöde <1>")
    (failure,) = cases["nöde <1>.interrupts", "NPU 0 cq_update_irq"]
    shown = failure.get("message").partition("found ")[2].partition("; likely")[0]
    readable = "".join(character for character in found if character.isprintable() and character != "\ufffe")
    assert [character for character in readable if character not in shown] == []
