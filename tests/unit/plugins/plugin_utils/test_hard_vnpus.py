# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hard vNPUs in the settings: which are refused, which ids and CPUs they get, and how a container is started on one."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.filter.vnpus import FilterModule
from ansible_collections.npu.affinity.plugins.module_utils._features.hard_vnpu.splitting import HardVnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import hard_vnpu
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import plan_refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import named, vnpus

TEMPLATES = [{"name": "vir05_1c_16g", "aicore": 5, "memory_gib": 16}, {"name": "vir10_3c_32g", "aicore": 10, "memory_gib": 32}]
DEVICE = {"number": 3, "file": "/dev/davinci3", "known_by": "interrupts"}
NPU = {"kind": "npu", "id": 2, "card": 3, "chip": 0, "phy_id": 3, "name": "910B3", "family": "a2", "memory_mib": 65536, "device": DEVICE}
ENTRY = {
    "id": 2,
    "card": 3,
    "chip": 0,
    "phy_id": 3,
    "pci": "0000:82:00.0",
    "pool": "0-23",
    "irq": "0-1",
    "mems": "0",
    "slice": "npu-2.slice",
}
PLAN = {"cpus": "0-23", "housekeeping": "", "violations": [], "npus": [ENTRY]}
SMALL, LARGE = {"npu": 2, "template": "vir05_1c_16g"}, {"npu": 2, "template": "vir10_3c_32g"}
SOFT = {"name": "soft", "npu": 2, "memory_mib": 1024, "core": 20}


def host(npu=(), **parts):
    topology = {
        "machine": {"architecture": "x86_64", "systemd": 252, "cgroup": "v2"},
        "driver": {"version": "23.0.1"},
        "kubelet": None,
        "cpus": {"online": "0-23", "siblings": []},
        "numa": [{"id": 0, "cpus": "0-23"}],
        "npus": [{**NPU, **dict(npu)}],
        "vnpus": {"templates": {"910B3": TEMPLATES}, "ai_cores": {"910B3": 20}, "recover": True},
        "problems": [],
    }
    return {**topology, **parts}


UNKNOWN = {"number": None, "file": None, "known_by": "unknown"}
REFUSED = [
    (
        "a template that the driver lacks",
        host(),
        [{"npu": 2, "template": "vir99"}],
        "NPU 2 has no template vir99; it has vir05_1c_16g, vir10_3c_32g",
    ),
    ("too many AI cores", host(), [LARGE, LARGE, SMALL], "want 25 AI cores and 81920 MiB of NPU 2, which has 20 and 65536 MiB"),
    ("too much memory", host({"memory_mib": 32768}), [LARGE, SMALL], "want 15 AI cores and 49152 MiB of NPU 2, which has 20 and 32768 MiB"),
    ("a product without", host({"family": "a5", "name": "950"}), [SMALL], "is to be a hard vNPU of NPU 2, which is a 950, which has none"),
    ("a silent npu-smi", host(vnpus={}), [SMALL], "which lists no templates by npu-smi; see npu-smi info -t template-info -i 3 -c 0"),
    (
        "soft and hard on one NPU",
        host(machine={"architecture": "aarch64"}, driver={"version": "25.5.1"}),
        [SMALL, SOFT],
        "use one of the two",
    ),
    ("an unknown device", host({"device": UNKNOWN}), [SMALL], "the device file of NPU 2 (NPU ID 3, chip 0) is not known"),
    ("quotas besides", host(), [{**SMALL, "core": 5}], "has a template, which sets memory and compute; leave memory_mib and core out"),
]


@pytest.mark.parametrize("topology, wanted, sentence", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_the_driver_cannot_make_is_refused(topology, wanted, sentence):
    plan = {**PLAN, "npus": [{**ENTRY, "phy_id": topology["npus"][0]["device"]["number"]}]}
    said = " ".join(plan_refusals(topology, plan, Named(vnpus=named(wanted))))
    assert sentence in said, said


PARTS = [
    ("none is there", [], [SMALL, LARGE], [148, 149]),
    ("both are there", [(148, "vir05_1c_16g"), (149, "vir10_3c_32g")], [SMALL, LARGE], [148, 149]),
    ("another order than theirs", [(148, "vir10_3c_32g"), (149, "vir05_1c_16g")], [SMALL, LARGE], [149, 148]),
    ("one of them, and a gap", [(150, "vir05_1c_16g")], [SMALL, SMALL], [150, 148]),
    ("an id is taken by what is not wanted", [(148, "vir10_3c_32g")], [SMALL], [149]),
    ("one of which nothing is known", [(148, None)], [SMALL], [149]),
]


@pytest.mark.parametrize("there, wanted, ids", [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_vnpus_that_exist_are_taken_and_new_get_free_ids(there, wanted, ids):
    topology = host({"parts": [{"id": number, "file": f"/dev/vdavinci{number}", "template": template} for number, template in there]})
    assert [vnpu["vnpu_id"] for vnpu in vnpus(topology, PLAN, named(wanted))] == ids


def test_a_hard_vnpu_gets_cores_and_a_device_but_no_limiter():
    small, large = FilterModule().filters()["vnpus"](PLAN, [SMALL, {**LARGE, "name": "b", "unit": "b.service"}], host())
    assert (small["name"], small["slice"], small["pool"], small["limiter"], small["volumes"]) == (
        "vnpu-0",
        "npu-2-vnpu_0.slice",
        "2-6",
        None,
        [],
    )
    assert (large["pool"], large["core"], large["memory_mib"], large["of"]) == ("7-17", 50, 32768, "NPU 2")
    text = launch(large, "docker", topology=host(), image="image")
    assert "limiter" not in text and "Device share" not in text
    devices = [word for word in text.split() if word.startswith("--device=") and "davinci_manager" not in word]
    assert devices[0] == "--device=/dev/vdavinci149:/dev/davinci149" and "--device=/dev/davinci3" not in text
    runtime = launch(large, "docker", topology=host(), image="image", ascend_runtime=True, notes=False).split()
    assert {"--env=ASCEND_VISIBLE_DEVICES=149", "--env=ASCEND_RUNTIME_OPTIONS=VIRTUAL"} <= set(runtime)
    (service,) = binding(host(), PLAN, Named(vnpus=[{**LARGE, "name": "b", "unit": "b.service"}]))["services"]
    assert (service["description"], service["needs"]) == ("vNPU b: hard vNPU 148, vir10_3c_32g of NPU 2.", None)


@pytest.mark.parametrize("family, is_said", [("a2", False), ("a3", True)])
def test_what_is_not_confirmed_is_said(family, is_said):
    said = " ".join(remarks(host({"family": family}), PLAN, Named(vnpus=named([SMALL]))))
    assert ("whether npu-smi can split an A3 is not confirmed" in said) is is_said


def test_what_is_wanted_of_ids_with_more_digits_can_be_recorded():
    """The vNPUs of the NPU with the physical id 56 have the ids 996 to 1011."""
    entry = {**ENTRY, "phy_id": 56}
    topology = host(
        {"phy_id": 56, "device": {**DEVICE, "number": 56}},
        vnpus={"templates": {"910B3": [{**TEMPLATES[0], "aicore": 1, "memory_gib": 1}]}, "ai_cores": {"910B3": 20}, "recover": True},
    )
    settings = {"enabled": True, "vnpus": [SMALL] * 5, "recover": "leave", "npu_smi": "", "timeout": 30, "python": "/usr/bin/python3"}
    found = hard_vnpu.wanted(topology, {**PLAN, "npus": [entry]}, settings)
    HardVnpus().check({key: {"original": value, "given": []} for key, value in found.live["values"].items()})
    assert found.live["values"]["3:0"].startswith("996 vir05_1c_16g, 997 ") and found.live["values"]["3:0"].endswith(", 1000 vir05_1c_16g")
