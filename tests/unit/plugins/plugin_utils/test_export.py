# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet as a table of its NPUs, and its drift over time."""

from __future__ import annotations

import csv
import io
import json

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._report.export import COLUMNS, rows, table
from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import timeline


TOPOLOGY = host([1, 0], nodes=2, cores=16, nodes_per_socket=1)
for npu in TOPOLOGY["npus"]:
    npu |= {"phy_id": npu["id"], "name": "910B3", "memory_mib": 65536}


def test_a_row_for_each_npu_in_a_stable_order():
    made = plan(TOPOLOGY, strategy="even_split")
    bound = {**TOPOLOGY, "applied": {**made, "npus": [{**npu, "pool": "0-3"} for npu in made["npus"]]}}
    records = [{"host": "b", "topology": TOPOLOGY, "plan": made}, {"host": "a", "topology": bound}, {"host": "c"}]
    found = rows(records)
    assert [(row["host"], row["id"], row["plan"], row["pool"], row["local"]) for row in found] == [
        ("a", 0, "in force", "0-3", 0.0),
        ("a", 1, "in force", "0-3", 1.0),
        ("b", 0, "planned", "16-31", 1.0),
        ("b", 1, "planned", "0-15", 1.0),
    ]
    assert all(tuple(row) == COLUMNS for row in found)
    assert rows(records[::-1]) == found
    assert json.loads(table(records, "json")) == found
    text = table(records, "csv")
    assert text.splitlines()[::3] == [
        "host,kind,id,card,chip,phy_id,name,family,pci,numa,memory_mib,plan,strategy,pool,irq,main,acl,release,mems,memory_nodes,slice,local",
        "b,npu,0,0,0,0,910B3,a2,0000:01:00.0,1,65536,planned,even_split,16-31,16-17,18-29,30,31,1,1,npu-0.slice,1.0",
    ]
    read = list(csv.DictReader(io.StringIO(text)))
    assert read == [{name: "" if value is None else str(value) for name, value in row.items()} for row in found]


def test_a_host_that_cannot_be_planned_has_its_facts():
    (first, _second) = rows([{"host": "a", "topology": TOPOLOGY, "refused": "Too few CPUs."}])
    assert (first["pci"], first["plan"], first["pool"], first["local"]) == ("0000:01:00.0", None, None, None)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_computes_nothing(text):
    record = {"host": "a", "topology": {**TOPOLOGY, "npus": [{**TOPOLOGY["npus"][0], "name": text}]}}
    assert next(csv.DictReader(io.StringIO(table([record], "csv"))))["name"] == "'" + text
    assert json.loads(table([record], "json"))[0]["name"] == text


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="format: 'xls' is none of csv, json"):
        table([], "xls")


def drifted(host, *causes, **more):
    return {"host": host, "bound": True, "drift": [{"cause": cause} for cause in causes], **more}


def test_drift_over_time_is_counted_by_cause_and_in_order():
    runs = [
        {"name": "b", "records": [drifted("x", time="2026-11-21T02:00:00Z"), drifted("y", time="2026-11-21T02:00:01Z")]},
        {"name": "a", "records": [drifted("x", "irqbalance", "irqbalance", time="2026-11-20T02:00:00Z"), {"host": "y", "msg": "broken"}]},
        {
            "name": "c",
            "records": [drifted("x", "lost card"), {"host": "z", "bound": False, "drift": []}, {"host": "u", "unreachable": "no"}],
        },
        {"name": "d", "records": []},
    ]
    assert [tuple(run.values()) for run in timeline(runs)] == [
        ("2026-11-20 02:00:00 UTC", 2, 1, 1, 2, {"irqbalance": 2}),
        ("2026-11-21 02:00:01 UTC", 2, 2, 0, 0, {}),
        ("c", 3, 1, 1, 1, {"lost card": 1}),
        ("d", 0, 0, 0, 0, {}),
    ]


def test_what_is_no_run_is_refused():
    with pytest.raises(ValueError, match="runs: a run has its name in 'name'"):
        timeline([{"host": "a"}])
