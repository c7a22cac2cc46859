# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the queues of network functions get, what is reported of those that stay, and how irqbalance is configured."""

import json
import subprocess

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import irq, nic
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import ON_HOST, feature_of
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

FIRST = "0000:7d:00.0"


def function(number=0, driver="hns3", numa=0):
    return {"pci": f"0000:7d:00.{number}", "name": f"eth{number}", "driver": driver, "numa": numa, "distances": {}}


def topology(*nics, isolated="", active=True, **isolation):
    return {
        "cpus": {"online": "0-15", "isolated": isolated},
        "isolation": isolation,
        "numa": [{"id": 0, "cpus": "0-7"}, {"id": 1, "cpus": "8-15"}],
        "nics": list(nics),
        "irqbalance": {"installed": True, "active": active, "argument_key": "OPTIONS", "arguments": ""},
    }


def plan(*pools, irq_cpus=True, poll="", cpus="0-15", housekeeping=""):
    """A plan of an NPU for each pool, whose first two CPUs are those of interrupts. ``cpus`` are those that were divided."""
    entries = [{"id": number, "pci": f"0000:c{number}:00.0", "pool": pool} for number, pool in enumerate(pools)]
    for entry in entries:
        first = int(entry["pool"].partition("-")[0])
        entry["irq"] = f"{first}-{first + 1}" if irq_cpus else ""
    return {"npus": entries, "poll": poll, "cpus": cpus, "housekeeping": housekeeping}


def wanted(plan, topology, value="near", **others):
    settings = of_features({"npu_affinity_nic": value, **others})["nic"]
    return feature_of("nic", topology, plan, settings)


# (the plan, the function, isolated CPUs, the CPUs that it gets)
CPUS = [
    (plan("0-5", "8-13"), function(), "", "6-7"),
    (plan("0-5", "8-13"), function(numa=1), "", "14-15"),
    (plan("0-7", "8-15"), function(numa=1), "", "8-9"),
    (plan("0-5"), function(), "6", "7"),
    (plan("0-5"), function(), "6-7", "0-1"),
    (plan("0-5", poll="6"), function(), "", "7"),
    (plan("0-7", irq_cpus=False), function(), "", None),
    (plan("0-5"), function(numa=None), "", None),
    (plan("0-5"), function(driver="i40e"), "", None),
]


@pytest.mark.parametrize(("planned", "nic", "isolated", "cpus"), CPUS)
def test_queues_get_the_cpus_of_their_node_outside_the_pools(planned, nic, isolated, cpus):
    feature = wanted(planned, topology(nic, isolated=isolated))
    assert feature.live == {"mode": "near", "functions": {FIRST: cpus} if cpus else {}}
    assert bool(feature.files) is bool(cpus) and ("its interrupts stay" in feature.notes[0]) is not bool(cpus)


def partition(cpus, group="other.slice", valid=True):
    return {"group": group, "kind": "isolated", "valid": valid, "cpus": cpus}


ONE_NODE = {"numa": [{"id": 0, "cpus": "0-15"}]}
# (the plan, what the kernel command line and partitions set apart, the CPUs that a function of the only node gets)
FORBIDDEN = [
    (plan("0-5", cpus="0-5", housekeeping="6-7"), {"partitions": [partition("8-11")], "nohz_full": "12-15"}, "6-7"),
    (plan("0-5", cpus="0-5", housekeeping="6-7"), {}, "6-7"),
    (plan("0-5", cpus="0-7"), {}, "6-7"),
    (plan("0-5"), {"partitions": [partition("8-11")], "nohz_full": "12-15"}, "6-7"),
    (plan("0-5"), {"partitions": [partition("8-11", valid=False)], "nohz_full": "12-15"}, "6-11"),
    (plan("2-5", cpus="2-7", housekeeping="0-1"), {"nohz_full": "0-5"}, "6-7"),
    (plan("0-5", cpus="0-7"), {"partitions": [partition("0-5", "npu.slice"), partition("6-7")]}, "0-1"),
    (plan("0-5", cpus="0-5"), {"nohz_full": "1-5"}, "0"),
    (plan("0-5", cpus="0-5"), {"nohz_full": "0-5"}, "0-1"),
    (plan("0-5", cpus="0-5"), {"partitions": [partition("0-3")]}, None),
]


@pytest.mark.parametrize(("planned", "apart", "cpus"), FORBIDDEN)
def test_queues_avoid_cpus_that_belong_to_others_or_are_isolated(planned, apart, cpus):
    functions = wanted(planned, {**topology(function(), **apart), **ONE_NODE}).live["functions"]
    assert functions == ({FIRST: cpus} if cpus else {})


LEFT_OUT = "CPUs 8-15 of node 1 are neither kept for the system nor among those that the plan divides (0-7); add some to "
ISOLATED = "CPUs 14-15, which node 1 has outside the pools, are isolated, tickless or in a cpuset partition; free some."
# (the plan, what the topology has besides, why a function of node 1 gets no CPU)
WHY = [
    (plan("0-5", cpus="0-7"), {}, LEFT_OUT),
    (plan("0-5", "8-13", irq_cpus=False), {"cpus": {"online": "0-15", "isolated": "14-15"}}, ISOLATED),
    (plan("0-5", "8-13", irq_cpus=False), {"isolation": {"partitions": [partition("14-15")]}}, ISOLATED),
    (plan("0-5"), {"cpus": {"online": "0-7", "isolated": ""}}, "node 1 has no online CPU."),
    (plan("0-5", "8-15", irq_cpus=False), {}, "node 1 has no CPU outside the pools and no IRQ CPU; set npu_affinity_housekeeping to"),
]


@pytest.mark.parametrize(("planned", "apart", "why"), WHY)
def test_the_reason_why_a_function_gets_no_cpu_is_told(planned, apart, why):
    (note,) = wanted(planned, {**topology(function(numa=1)), **apart}).notes
    assert f"its interrupts stay, because {why}" in note


def test_notes_name_functions_together_and_a_report_has_no_file():
    report = wanted(plan("0-5"), topology(function()), "report")
    assert not (report.files or report.enabled or report.runtime or report.needs_plan) and report.live["mode"] == "report"
    assert report.notes == ("Network interrupts of eth0 (hns3, 0000:7d:00.0, node 0) would, with npu_affinity_nic: near, go to CPUs 6-7.",)
    both = "Network interrupts of eth0 (hns3, 0000:7d:00.0, node 0), eth1 (hns3, 0000:7d:00.1, node 0) go to CPUs 6-7."
    assert wanted(plan("0-5"), topology(function(), function(1))).notes == (both,)
    functions = [function(), function(1, numa=None), function(2, driver="i40e")]
    codes = {value: [note.code for note in wanted(plan("0-5"), topology(*functions), value).notes] for value in ("report", "near")}
    assert codes == {"report": ["NPU_NIC_ADVICE"] * 3, "near": ["NPU_NIC_PLACED", *["NPU_NIC_UNPLACED"] * 2]}
    absent = [wanted(plan("0-5"), topology(function()), value) for value in ("off", False)] + [wanted(plan(), topology(function()))]
    assert absent == [nic.Feature(owned=ON_HOST["nic"].owned)] * 3


def test_the_units_run_what_the_file_says():
    feature = wanted(plan("0-5"), topology(function()), npu_affinity_wait=30)
    texts = {entry["path"].rpartition("/")[2]: entry["content"] for entry in feature.files}
    assert json.loads(texts["nic.json"])["functions"] == {FIRST: "6-7"}
    assert "npu_affinity nic --rebind-limit 4\n" in texts["npu-affinity-nic.service"]
    assert "npu_affinity nic --pci %i --wait 30\n" in texts["npu-affinity-nic@.service"]
    assert feature.started == ("npu-affinity-nic.timer",)
    rules = texts["91-npu-affinity-nic.rules"]
    assert f'KERNELS=="{FIRST}"' in rules and "npu-affinity-nic@%b.service" in rules


@pytest.mark.parametrize(("active", "enabled", "is_said"), [(True, False, True), (True, True, False), (False, False, False)])
def test_an_irqbalance_that_is_not_told_is_said(active, enabled, is_said):
    notes = wanted(plan("0-5"), topology(function(), active=active), npu_affinity_irq_enabled=enabled).notes
    assert any("set npu_affinity_irq_enabled to true" in note for note in notes) is is_said


@pytest.mark.parametrize("has_irq_cpus", [True, False])
def test_irqbalance_spares_network_functions_while_nic_is_on(tmp_path, has_irq_cpus):
    host, planned = topology(function()), plan("0-5", irq_cpus=has_irq_cpus)
    settings = of_features({"npu_affinity_nic": "near"})
    file, functions = nic.left_alone(host, planned, settings["nic"])
    assert functions == [FIRST] and nic.left_alone(host, planned, of_features({"npu_affinity_nic": "report"})["nic"])[1] == []
    there = tmp_path / "nic.json"
    of_irq = {**settings["irq"], "enabled": True, "left_alone": [(str(there), functions)]}
    feature = irq.wanted(host, planned, of_irq)
    assert bool(feature.enabled) is has_irq_cpus
    script = tmp_path / "policy"
    script.write_text(next(entry["content"] for entry in feature.files if "policy" in entry["path"] and entry["mode"] == "0755"))

    def asked(pci):
        return subprocess.run(["sh", script, f"/sys/devices/pci0000:7c/{pci}"], capture_output=True, text=True, check=True).stdout

    assert asked(FIRST) == "" and asked("0000:c0:00.0") == ("ban=true\n" if has_irq_cpus else "")
    there.write_text("{}")
    assert asked(FIRST) == "ban=true\n" and asked("0000:7d:00.1") == ""
