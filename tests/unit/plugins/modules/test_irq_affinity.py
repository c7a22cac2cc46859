# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a simulated host with two cards of two dies, as Ansible runs it."""

from __future__ import annotations

import json

import pytest

simulator = pytest.importorskip("tests.simulator.generate")


MACHINE = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 2},
    "npus": {
        "family": "a3",
        "name": "Ascend910",
        "memory_mib": 65536,
        "chips_per_card": 2,
        "cards": [
            {"npu": 0, "bdf": ["0000:9d:00.0", "0000:9f:00.0"], "node": 0},
            {"npu": 1, "bdf": ["0000:99:00.0", "0000:9b:00.0"], "node": 1},
        ],
    },
}
ADDRESSES = ["0000:9d:00.0", "0000:9f:00.0", "0000:99:00.0", "0000:9b:00.0"]


def plan_of(addresses):
    return {
        "npus": [
            {"id": number, "pci": pci, "pool": "%d-%d" % (8 * number, 8 * number + 7), "irq": "%d-%d" % (8 * number, 8 * number + 1)}
            for number, pci in enumerate(addresses)
        ]
    }


PLAN = plan_of(ADDRESSES)


@pytest.fixture
def root(tmp_path):
    simulator.generate(MACHINE, tmp_path)
    return tmp_path


@pytest.fixture
def run(run_module):
    return lambda root, plan=PLAN, **arguments: run_module("irq_affinity", root=str(root), plan=plan, **arguments)


def affinities(root):
    return {path.parent.name: path.read_text().strip() for path in root.glob("proc/irq/*/smp_affinity_list")}


def test_a_run_binds_records_the_old_state_and_reports_briefly(run, root):
    before = affinities(root)
    result = run(root)
    assert result["changed"]
    assert result["failures"] == result["unchangeable"] == []
    npu = result["npus"][3]
    assert (npu["id"], npu["pci"], npu["device"], npu["text"]) == (3, "0000:9b:00.0", 3, "")
    assert [(entry["name"], entry["wanted"], entry["after"], entry["state"]) for entry in npu["interrupts"]] == [
        ("sq_send_trigger_irq", "24", "24", "changed"),
        ("cq_update_irq", "25", "25", "changed"),
    ]
    first, last = (int(number) for number in npu["interrupts"][1]["irqs"].split("-"))
    assert last - first == 15
    assert {affinities(root)[str(irq)] for irq in range(first, last + 1)} == {"25"}
    assert npu["workqueues"][0]["after"] == npu["threads"][0]["after"] == "24"
    recorded = json.loads((root / "etc/npu-affinity/previous.json").read_text())["interrupts"]
    assert recorded["functions"]["0000:9b:00.0"]["1 sq_send_trigger_irq"] == before[str(first - 1)]


def test_a_second_run_changes_nothing_and_keeps_the_first_record(run, root):
    run(root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    result = run(root)
    assert not result["changed"]
    assert result["diff"] == []
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before


def test_a_check_predicts_what_the_run_does_with_the_same_diff(run, root):
    before = affinities(root)
    predicted = run(root, _ansible_check_mode=True)
    assert affinities(root) == before
    assert not (root / "etc/npu-affinity").exists()
    done = run(root)
    assert (predicted["changed"], predicted["diff"], predicted["npus"]) == (done["changed"], done["diff"], done["npus"])
    title, *lines = done["diff"][0]["prepared"].splitlines()
    assert title == "interrupts:" and len(lines) == 4
    assert lines[3] == (
        "  ~ NPU 3 0000:9b:00.0: sq_send_trigger_irq 16-31 -> 24; 16 cq_update_irq 16-31 -> 25; dev3_sq_send_wq 0-31 -> 24; "
        "dev3_sq_task 0-31 -> 24"
    )


def test_kernel_managed_interrupts_are_reported_and_no_failure(run, tmp_path):
    simulator.generate(dict(MACHINE, npus=dict(MACHINE["npus"], managed=["cq_update_irq"])), tmp_path)
    result = run(tmp_path)
    assert len(result["unchangeable"]) == 4
    assert "cq_update_irq is placed by the kernel itself and stays on CPUs" in result["unchangeable"][0]
    assert {entry["state"] for entry in result["npus"][0]["interrupts"]} == {"changed", "managed"}
    assert not run(tmp_path)["changed"]


def test_a_missing_interrupt_fails_after_the_rest_is_bound(run, root):
    result = run(root, plan_of(["0000:32:00.0"] + ADDRESSES[1:]))
    sentence = "NPU 0 (0000:32:00.0): its driver has not requested sq_send_trigger_irq and cq_update_irq; bind again when it is loaded"
    assert result["msg"] == "not everything could be bound: " + sentence
    assert result["failures"] == [sentence]
    assert result["npus"][1]["interrupts"][0]["after"] == "8"


def test_a_card_that_is_gone_is_a_warning(run, root):
    result = run(root, plan_of(["0000:ee:00.0"] + ADDRESSES[1:]))
    assert not result.get("failed")
    assert len(result["warnings"]) == 1
    assert "NPU 0 (0000:ee:00.0): it is not on the PCI bus" in str(result["warnings"])


@pytest.mark.parametrize("plan, text", [({}, "the plan has no list 'npus'"), (plan_of([]), None)])
def test_no_plan_is_a_failure_and_an_empty_one_is_not(run, root, plan, text):
    result = run(root, plan)
    assert (text in result["msg"]) if text else (result["changed"], result["npus"]) == (False, [])


def test_a_driver_without_interrupts_is_awaited_and_then_fails(run, root):
    result = run(root, plan_of(["0000:32:00.0"]), wait=1)
    assert "its driver has not requested" in result["msg"]
