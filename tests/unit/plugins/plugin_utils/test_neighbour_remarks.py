# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of interrupts of other devices on its pools."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.neighbours import remarks

PLAN = {
    "npus": [
        *({"kind": "npu", "id": npu, "pool": f"{8 * npu}-{8 * npu + 7}"} for npu in range(4)),
        {"kind": "gpu", "id": 0, "pool": "32-39"},
        {"kind": "npu", "id": 9, "pool": ""},
    ]
}
NIC = {"pci": "0000:7d:00.0", "name": "eth0", "driver": "hns3", "numa": 0, "irqs": 64, "shared": {}, "single": []}
ABOUT = "eth0 (hns3, 0000:7d:00.0, node 0): "
DEVICES = [
    ("a queue for each CPU", {"single": ["0-15,40-87"]}, ABOUT + "16 of 64 interrupts may run on pool CPUs of NPU 0-1."),
    ("queues that share CPUs", {"single": ["0-31", "0-31"]}, ABOUT + "64 of 64 interrupts may run on pool CPUs of NPU 0-3."),
    ("anywhere", {"shared": {"0-47": 63, "40": 1}}, ABOUT + "63 of 64 interrupts may run on pool CPUs of NPU 0-3 and GPU 0."),
    ("on no pool", {"shared": {"40-47": 32}, "single": ["40-71"]}, None),
    (
        "nothing known of it",
        {"name": NIC["pci"], "driver": "", "numa": None, "shared": {"39-40": 64}},
        "0000:7d:00.0: 64 of 64 interrupts may run on pool CPUs of GPU 0.",
    ),
    ("a bad name", {"name": "e\x1b[2J", "single": ["0"]}, r"e\x1b[2J" + ABOUT[4:] + "1 of 64 interrupts may run on pool CPUs of NPU 0."),
]


@pytest.mark.parametrize("change, expected", [row[1:] for row in DEVICES], ids=[row[0] for row in DEVICES])
def test_interrupts_on_pools_are_counted(change, expected):
    assert remarks({"others": [{**NIC, **change}]}, PLAN) == ([expected] if expected else [])


def test_functions_that_the_plan_places_are_left_out():
    device = {**NIC, "single": ["0-15"]}
    assert remarks({"others": [device]}, PLAN, {NIC["pci"]}) == []


def test_only_the_devices_with_most_interrupts_have_a_line():
    disks = [{**NIC, "name": f"nvme{number}", "irqs": number, "shared": {"0-39": number}} for number in range(1, 8)]
    found = remarks({"others": disks}, PLAN)
    assert [sentence.split()[0] for sentence in found[:-1]] == ["nvme7", "nvme6", "nvme5", "nvme4"]
    assert found[-1] == "3 more devices have 6 interrupts that may run on pool CPUs."
    assert remarks({}, PLAN) == remarks({"others": disks}, {"npus": []}) == []
