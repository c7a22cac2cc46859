# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on simulated hosts, as Ansible runs it."""

from __future__ import annotations

import os
import sys

import pytest

from tests.simulator import generate as simulator
from tests.simulator.faults import set_faults

DUO = {
    "family": "310p",
    "name": "310P3",
    "memory_mib": 44280,
    "chips_per_card": 2,
    "cards": [{"npu": 2, "bdf": "0000:01:00.0"}, {"npu": 5, "bdf": "0000:02:00.0", "device_share": True}],
}
TOPOLOGY = {
    "driver": {"version": "25.3.rc1", "npu_smi": "25.3.rc1"},
    "npus": [
        {"kind": "npu", "card": card, "chip": chip, "phy_id": None, "name": "310P3", "family": "310p"} for card in (2, 5) for chip in (0, 1)
    ],
}


@pytest.fixture
def root(tmp_path):
    simulator.generate({"cpus": {"per_node": 8}, "npus": DUO}, tmp_path)
    program = tmp_path / "usr/local/Ascend/driver/tools/npu-smi"
    program.write_text("#!%s -IS\n%s" % (os.path.realpath(sys.executable), program.read_text()))
    return tmp_path


@pytest.fixture
def run(run_module):
    return lambda root, **arguments: run_module("device_share", root=str(root), **arguments)


def calls(root):
    log = root / "var/log/npu-smi-calls.log"
    return log.read_text().splitlines() if log.exists() else []


def chip(card, number, before, after, enabled):
    return {"card": card, "chip": number, "before": before, "after": after, "enabled": enabled}


def test_a_run_switches_what_differs_and_reports_every_chip(run, root):
    result = run(root, enabled=True)
    assert result["changed"]
    assert result["chips"] == [
        chip(2, 0, False, True, True),
        chip(2, 1, False, True, True),
        chip(5, 0, True, True, True),
        chip(5, 1, True, True, True),
    ]
    assert (result["busy"], result["failures"], result["recover"]) == ([], [], None)
    assert result["diff"] == [{"prepared": "device share:\n  ~ card 2 chip 0: off -> on\n  ~ card 2 chip 1: off -> on\n"}]
    assert [call for call in calls(root) if call.startswith("set")] == ["set -t device-share -i 2 -d 1"]
    assert not run(root, enabled=True)["changed"]
    off = run(root, enabled=False)
    assert [entry["after"] for entry in off["chips"]] == [False, False, True, True], "what was on before stays on"
    assert "card 5: chip 0, 1 stays on" in str(off["warnings"])


def test_a_check_predicts_and_the_topology_saves_a_call(run, root):
    result = run(root, enabled=True, npus=[{"card": 2, "chip": 1}], topology=TOPOLOGY, min_driver="25.3.rc1", _ansible_check_mode=True)
    assert result["changed"]
    assert result["chips"] == [chip(2, 0, False, False, None), chip(2, 1, False, True, True)]
    assert calls(root) == ["info -t device-share -i 2"]


def test_a_busy_card_fails_the_task_at_its_end_unless_skippable(run, root):
    set_faults(root, busy=[2])
    result = run(root, enabled=True)
    sentence = "card 2: chip 0, 1 is not on, because a container holds the card (exporters and device plugins count); stop it and run again"
    assert result["msg"] == "device share differs from the settings: " + sentence
    assert (result["busy"], result["failures"]) == ([2], [sentence])
    result = run(root, enabled=True, ignore_busy=True)
    assert not result.get("failed")
    assert result["busy"] == [2]
    assert sentence in str(result["warnings"])


@pytest.mark.parametrize("recover", [True, "on"])
def test_recovery_by_the_driver_is_switched_and_shown(run, root, recover):
    result = run(root, enabled=True, recover=recover)
    assert result["recover"] == {"before": False, "after": True}
    assert result["diff"][0]["prepared"].endswith("  ~ recovery by the driver: off -> on\n")
    again = run(root, enabled=True, recover=recover)
    assert (again["changed"], again["recover"]) == (False, {"before": True, "after": True})


REFUSED = [
    ({"enabled": True, "npus": [3]}, "npus: there is no card 3; npu-smi knows cards 2,5"),
    ({"enabled": True, "topology": TOPOLOGY}, "the Ascend driver is 25.3.rc1, and 25.5 or newer is required"),
    ({"enabled": True, "npu_smi": "/nowhere/npu-smi"}, "The command '/nowhere/npu-smi', named for npu-smi, does not exist"),
    ({"enabled": True, "recover": "maybe"}, "value of recover must be one of: leave, on, off"),
]


@pytest.mark.parametrize("arguments, text", REFUSED)
def test_the_impossible_is_refused_before_anything_is_changed(run, root, arguments, text):
    assert text in run(root, **arguments)["msg"]
    assert not any(call.startswith("set") for call in calls(root))


def test_a_host_with_only_gpus_switches_nothing_without_npu_smi(run, tmp_path):
    topology = {"driver": {"version": None}, "npus": [{"kind": "gpu", "card": None, "chip": None}]}
    result = run(tmp_path, enabled=True, topology=topology, boot_unit=TEXT)
    assert (result["changed"], result["chips"], result["files"]) == (False, [], [])


TEXT = "# Managed by npu.affinity\n[Service]\nExecStart=/usr/bin/python3 -m npu_affinity irq\n[Install]\nWantedBy=multi-user.target\n"
UNIT = "/etc/systemd/system/npu-affinity-device-share.service"
LINK = "etc/systemd/system/multi-user.target.wants/npu-affinity-device-share.service"


def test_the_boot_unit_comes_with_its_code_but_is_removed_alone(run, root):
    predicted = run(root, enabled=True, boot_unit=TEXT, _ansible_check_mode=True)
    assert not (root / UNIT[1:]).exists()
    result = run(root, enabled=True, boot_unit=TEXT)
    assert (result["files"], result["changed"]) == (predicted["files"], predicted["changed"])
    assert result["diff"] == predicted["diff"] and "+ npu-affinity-device-share.service  ExecStart=" in result["diff"][0]["prepared"]
    assert (root / UNIT[1:]).read_text() == TEXT
    assert (root / LINK).is_symlink()
    assert (root / "usr/local/lib/npu-affinity/npu_affinity.zip").is_file()
    assert not run(root, enabled=True, boot_unit=TEXT)["changed"]
    assert run(root, enabled=True)["removed"] == []
    result = run(root, enabled=True, boot_unit="")
    assert (result["removed"], result["changed"]) == ([UNIT], True)
    assert not (root / LINK).is_symlink()
    assert (root / "usr/local/lib/npu-affinity/npu_affinity.zip").is_file()


def test_the_code_lies_where_the_boot_unit_looks_for_it(run, run_module, root):
    usual, other = "/usr/local/lib/npu-affinity/npu_affinity.zip", "/var/lib/npu-affinity/npu_affinity.zip"
    environment = f"[Service]\nEnvironment=PYTHONPATH={other} PYTHONDONTWRITEBYTECODE=1\n"
    assert run(root, enabled=True, boot_unit=TEXT.replace("[Service]\n", environment))["files"] == [other, UNIT]
    assert run(root, enabled=True, boot_unit=TEXT)["files"] == [usual, UNIT]
    assert (root / other[1:]).is_file(), "units of roles may run the one that was there"
    run_module("unbind", root=str(root))
    assert [(root / path[1:]).parent.exists() for path in (usual, other)] == [False, False]


def test_the_boot_unit_ignores_busy_cards_and_wrong_requests(run, root):
    set_faults(root, busy=[2])
    assert run(root, enabled=True, boot_unit=TEXT)["failed"]
    assert (root / UNIT[1:]).exists()
    assert run(root, enabled=True, npus=[3], boot_unit="")["failed"]
    assert (root / UNIT[1:]).exists()
