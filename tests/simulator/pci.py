# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/bus/pci and /sys/devices/pci*: accelerators, and other functions that must not be taken for accelerators."""

from __future__ import annotations

from .machine import Function, Machine
from .tree import Tree

BUS = "/sys/bus/pci"
NAMES = {"hns3": "net/eth0", "mlx5_core": "net/eth0", "nvme": "nvme/nvme0"}
"""The folders by which functions of these drivers get their names; no machine has two of one."""


def write(tree: Tree, machine: Machine) -> None:
    for function in machine.functions:
        _write_function(tree, machine, function)


def _write_function(tree: Tree, machine: Machine, function: Function) -> None:
    local = machine.near(function.node)
    vendor, device = function.vendor, function.device
    uevent = "DRIVER=%s\nPCI_CLASS=%s\nPCI_ID=%s:%s\nPCI_SUBSYS_ID=0200:0100\nPCI_SLOT_NAME=%s"
    for name, value in {
        "vendor": "0x" + vendor,
        "device": "0x" + device,
        "class": "0x" + function.pci_class,
        "subsystem_vendor": "0x0200",
        "subsystem_device": "0x0100",
        "revision": "0x20",
        "numa_node": function.node,
        "local_cpulist": local,
        "local_cpus": machine.mask(local),
        "enable": 1,
        "irq": function.vectors[0].irq if function.vectors else 0,
        "uevent": uevent % (function.driver, function.pci_class, vendor.upper(), device.upper(), function.bdf),
    }.items():
        tree.write("%s/%s" % (function.path, name), value)
    for vector in function.vectors:
        tree.write("%s/msi_irqs/%d" % (function.path, vector.irq), "msix")
    if function.driver in NAMES:
        tree.write("%s/%s/uevent" % (function.path, NAMES[function.driver]), "")
    driver = "%s/drivers/%s" % (BUS, function.driver)
    tree.link("%s/devices/%s" % (BUS, function.bdf), function.path)
    tree.link("%s/%s" % (driver, function.bdf), function.path)
    tree.link(function.path + "/driver", driver)
    tree.link(function.path + "/subsystem", BUS)
