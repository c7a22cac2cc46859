# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a simulated host with two cards, as Ansible runs it."""

from __future__ import annotations

import json

import pytest

from tests.simulator import generate as simulator
from tests.fakes.two_cards import two_cards

MACHINE = two_cards(0, 1)
FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"


def plan_of(*addresses):
    pools = [(8 * number, 8 * number + 7) for number in range(len(addresses))]
    npus = zip(addresses, pools, strict=True)
    return {
        "npus": [
            {"id": number, "pci": pci, "pool": f"{first}-{last}", "irq": f"{first}-{first + 1}"}
            for number, (pci, (first, last)) in enumerate(npus)
        ]
    }


@pytest.fixture
def run(run_module, tmp_path):
    def call(plan, machine=MACHINE, **arguments):
        if not (tmp_path / "proc").exists():
            simulator.generate(machine, tmp_path)
        return run_module("irq_affinity", root=str(tmp_path), plan=plan, **arguments)

    return call


def affinities(root):
    return {path.parent.name: path.read_text().strip() for path in root.glob("proc/irq/*/smp_affinity_list")}


def test_a_check_predicts_a_run_that_changes_nothing_again(run, tmp_path):
    simulator.generate(MACHINE, tmp_path)
    before = affinities(tmp_path)
    predicted = run(plan_of(FIRST, SECOND), _ansible_check_mode=True)
    assert affinities(tmp_path) == before and not (tmp_path / "etc/npu-affinity").exists()
    done = run(plan_of(FIRST, SECOND))
    assert [done[key] for key in ("changed", "diff", "npus")] == [predicted[key] for key in ("changed", "diff", "npus")]
    assert done["changed"] and done["failures"] == done["unchangeable"] == []
    line = "sq_send_trigger_irq 16-31 -> 8; 16 cq_update_irq 16-31 -> 9; dev1_sq_send_wq 0-31 -> 8; dev1_sq_task 0-31 -> 8"
    assert done["diff"][0]["prepared"].splitlines()[0::2] == ["interrupts:", f"  ~ NPU 1 {SECOND}: {line}"]
    npu = done["npus"][1]
    assert (npu["id"], npu["pci"], npu["device"], npu["text"]) == (1, SECOND, 1, "")
    assert [(entry["name"], entry["wanted"], entry["after"], entry["state"]) for entry in npu["interrupts"]] == [
        ("sq_send_trigger_irq", "8", "8", "changed"),
        ("cq_update_irq", "9", "9", "changed"),
    ]
    first, last = map(int, npu["interrupts"][1]["irqs"].split("-"))
    assert last - first == 15 and {affinities(tmp_path)[str(irq)] for irq in range(first, last + 1)} == {"9"}
    assert npu["workqueues"][0]["after"] == npu["threads"][0]["after"] == "8"
    recorded = json.loads((tmp_path / "etc/npu-affinity/previous.json").read_text())["interrupts"]
    assert recorded["functions"][SECOND]["1 sq_send_trigger_irq"] == before[str(first - 1)]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = run(plan_of(FIRST, SECOND))
    assert (again["changed"], again["diff"]) == (False, [])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == times


MANAGED = dict(MACHINE, npus=dict(MACHINE["npus"], managed=["cq_update_irq"]))
NOT_LOADED = "NPU %d (0000:32:00.0): its driver has not requested sq_send_trigger_irq and cq_update_irq; bind again when it is loaded"
STAYS = "NPU %d (%s): IRQ %s cq_update_irq is placed by the kernel itself and stays on CPUs %s"
GONE = ", so nothing of it is bound; plan again when it is back, or gone for good"
FAILS = "not everything could be bound: " + NOT_LOADED
ENDINGS = [
    pytest.param(
        MANAGED,
        plan_of(FIRST, SECOND),
        {"unchangeable": [STAYS % (0, FIRST, "2754-2769", "0-15"), STAYS % (1, SECOND, "3010-3025", "16-31")], "failures": []},
        id="kernel-managed interrupts are no failure",
    ),
    pytest.param(
        MACHINE,
        plan_of(SECOND, "0000:32:00.0"),
        {"changed": True, "failures": [NOT_LOADED % 1], "msg": FAILS % 1},
        id="a driver that is not loaded fails after the rest is bound",
    ),
    pytest.param(
        MACHINE,
        plan_of(FIRST, "0000:ee:00.0"),
        {"changed": True, "failures": [], "warnings": ["NPU 1 (0000:ee:00.0): it is not on the PCI bus" + GONE]},
        id="a card that is gone is a warning",
    ),
    pytest.param(MACHINE, plan_of(), {"changed": False, "npus": []}, id="an empty plan"),
    pytest.param(
        MACHINE, {}, {"msg": "the plan has no list 'npus' of NPUs with 'id' and 'pool'; give the fact npu_affinity_plan"}, id="no plan"
    ),
]


@pytest.mark.parametrize("machine, plan, expected", ENDINGS)
def test_how_a_run_ends(run, machine, plan, expected):
    result = run(plan, machine)
    assert {key: result.get(key) for key in expected} == expected
    assert bool(result.get("failed")) is ("msg" in expected)


def test_a_driver_without_interrupts_is_awaited_and_then_fails(run):
    assert run(plan_of("0000:32:00.0"), wait=1)["msg"] == FAILS % 0
