# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._kernel import pci as _pci


def function(pci, vendor, device, kind, node=None):
    folder = "/sys/bus/pci/devices/" + pci
    files = {folder + "/class": kind, folder + "/vendor": vendor, folder + "/device": device}
    if node is not None:
        files[folder + "/numa_node"] = node
    return files


@pytest.mark.parametrize(
    "story, vendor, device, kind, family",
    [
        ("Ascend 310", "0x19e5", "0xd100", "0x120000", "310"),
        ("Ascend 310B", "0x19e5", "0xd107", "0x120000", "310"),
        ("Ascend 310P", "0x19e5", "0xd500", "0x120000", "310p"),
        ("Ascend 910A", "0x19e5", "0xd801", "0x120000", "910"),
        ("Ascend 910B", "0x19e5", "0xd802", "0x120000", "a2"),
        ("Ascend 910C", "0x19e5", "0xd803", "0x120001", "a3"),
        ("Ascend 950", "0x19e5", "0xd806", "0x120000", "a5"),
        ("the compression engine of a Kunpeng", "0x19e5", "0xa250", "0x120000", None),
        ("the display of a management controller", "0x19e5", "0x1711", "0x030000", None),
        ("a bridge with an NPU's device id", "0x19e5", "0xd802", "0x060400", None),
        ("an NPU's device id of another vendor", "0x1af4", "0xd802", "0x120000", None),
        ("NVIDIA 3D controller", "0x10de", "0x26b9", "0x030200", "gpu"),
        ("NVIDIA display", "0x10de", "0x2204", "0x030000", "gpu"),
        ("the audio function of an NVIDIA card", "0x10de", "0x1aef", "0x040300", None),
        ("AMD display", "0x1002", "0x73bf", "0x030000", None),
    ],
)
def test_class_and_vendor_and_device_make_an_accelerator(tree, story, vendor, device, kind, family):
    host = tree.write(function("0000:c1:00.0", vendor, device, kind, 6))
    assert _pci.accelerators(host)[0] == ({"0000:c1:00.0": {"family": family, "numa": 6}} if family else {}), story


@pytest.mark.parametrize("printed, node", [("0", 0), ("6", 6), ("-1", None), (None, None), ("", None)])
def test_a_numa_node_that_the_kernel_does_not_know(tree, printed, node):
    host = tree.write(function("000a:01:00.0", "0x19e5", "0xd802", "0x120000", printed))
    assert _pci.numa_node(host, "000a:01:00.0") == node


@pytest.mark.parametrize("with_cpus, node", [("0", 0), ("3", 3), ("0-1", None), ("0,2", None), (None, None)])
def test_the_only_node_with_cpus_is_that_of_every_function(tree, with_cpus, node):
    tree.write({"/sys/devices/system/node/has_cpu": with_cpus} if with_cpus else {})
    host = tree.write(function("0000:00:06.0", "0x10de", "0x2335", "0x030200", "-1"))
    assert _pci.numa_node(host, "0000:00:06.0") == node


def test_no_pci_bus_at_all(tree):
    assert _pci.accelerators(tree.host) == ({}, [])
    assert _pci.numa_node(tree.host, "0000:c1:00.0") is None
