# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose logic ids are not the numbers of their device files: what names a device, names the right one."""

import re
import subprocess

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter.launch import launch
from ansible_collections.npu.affinity.plugins.module_utils._base.table import rows
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import vnpus
from tests.simulator import faults, generate
from tests.simulator.driver import NPU_SMI

SOFT = {"name": "a", "npu": 2, "memory_mib": 28672, "core": 20}
CONTAINERS = ("docker", "podman", "nerdctl", "compose", "quadlet", "ctr")
DAVINCI = re.compile(r"/dev/davinci(\d+)")


def gathered(root, machine, tweak=None):
    generate.generate(machine, root)
    if tweak:
        tweak(root)
    topology = gather(Host(str(root), timeout=60))
    return topology, plan(topology)


def lost_second(root):
    faults.lose_card(root, 1)


def lost_and_silent(root):
    """The driver's interrupts have names without numbers, and npu-smi is too old to tell them."""
    faults.lose_card(root, 1)
    table = root / "proc/interrupts"
    table.write_text(re.sub(r"trs-mbox-\d+-\d+", "mailbox", table.read_text()))
    answer = {"text": "Error parameter of -t\n", "status": 215}
    faults.set_faults(root, answers={f"info -t phyid-remap -p {number}": answer for number in range(8)})


def test_an_a2_that_lost_a_card_launches_on_the_right_device(tmp_path):
    topology, made = gathered(tmp_path, "a2_8x24", lost_second)
    entry = made["npus"][2]
    assert (entry["id"], entry["card"], entry["pci"], entry["phy_id"]) == (2, 3, "0000:82:00.0", 3)
    for form in CONTAINERS:
        for host in (topology, None):
            assert set(DAVINCI.findall(launch(entry, form, image="docker.io/library/x", topology=host))) == {"3"}, form
    (pair,) = workloads(made, [{"name": "m", "npus": [1, 2]}], topology)
    assert set(DAVINCI.findall(launch(pair, "compose", topology=topology))) == {"2", "3"}
    assert "ASCEND_VISIBLE_DEVICES=2,3 " in launch(pair, "docker", ascend_runtime=True, topology=topology)
    (soft,) = vnpus(topology, made, [SOFT])
    assert soft["environment"]["ASCEND_VISIBLE_DEVICES"] == "3"
    (everything,) = workloads(made, [{"name": "all", "npus": list(range(7))}], topology)
    lines = re.findall("File=/dev/davinci([0-9]+) Cores=([0-9,-]+)", launch(everything, "slurm", topology=topology, slurm_version="22.05"))
    assert lines == [(str(entry["card"]), entry["pool"]) for entry in made["npus"]]
    table = rows(made, topology)
    assert table[0].split()[:5] == ["NPU", "name", "NPU", "ID", "chip"] and "device" in table[0]
    assert table[3].split()[:6] == ["2", "910B3", "3", "0", "davinci3", "0000:82:00.0"], "numbers of npu-smi"
    sentence = unknown_npus("npu_affinity_services", "llm.service", [7], made)
    assert "wants NPU 7, but the plan of this host has NPU 0, 1 (NPU ID 2, chip 0), 2 (NPU ID 3, chip 0)" in sentence


def test_a_number_that_nothing_tells_is_refused_not_guessed(tmp_path):
    topology, made = gathered(tmp_path, "a2_8x24", lost_and_silent)
    assert {npu["device"]["known_by"] for npu in topology["npus"]} == {"unknown"}
    assert "?" in rows(made, topology)[3].split()
    for form in (*CONTAINERS, "slurm"):
        with pytest.raises(AnsibleFilterError, match="the device file of NPU 2 .NPU ID 3, chip 0. is not known: .*phyid-remap"):
            launch(made["npus"][2], form, topology=topology, **({"image": "x"} if form in CONTAINERS else {}))
    assert "ASCEND_RT_VISIBLE_DEVICES=2 " in launch(made["npus"][2], "numactl", topology=topology, command=["serve"])


def test_hard_vnpus_are_parts_of_their_npu(tmp_path):
    def tweak(root):
        for words in ("-i 3 -c 0 -f vir05_1c_16g", "-i 3 -c 0 -f vir10_3c_32g -v 151"):
            subprocess.run([f"{root}{NPU_SMI}", "set", "-t", "create-vnpu", *words.split()], check=True, capture_output=True)
        (root / "dev/vdavinci120").touch()  # of which npu-smi says nothing

    topology, _made = gathered(tmp_path, "a2_8x24", tweak)
    parts = {npu["id"]: [(part["file"], part["id"], part["template"]) for part in npu["parts"]] for npu in topology["npus"] if npu["parts"]}
    made = [("/dev/vdavinci148", 148, "vir05_1c_16g"), ("/dev/vdavinci151", 151, "vir10_3c_32g")]
    assert parts == {1: [("/dev/vdavinci120", 120, None)], 3: made}
    calls = (tmp_path / "var/log/npu-smi-calls.log").read_text().splitlines()
    assert [call for call in calls if "info-vnpu" in call] == ["info -t info-vnpu -i 1 -c 0", "info -t info-vnpu -i 3 -c 0"]
