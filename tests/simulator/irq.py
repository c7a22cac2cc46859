# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/bus/pci and /sys/devices/pci*, /proc/interrupts, /proc/irq and the driver's workqueues.

Among the functions are others that must not be taken for accelerators.

``effective_affinity_list`` is a link to ``smp_affinity_list``, so a written value is in force at once, as it is where the
interrupt controller can move an interrupt at any time. An interrupt that the kernel manages has both as files of their own and
``smp_affinity_list`` without the write bit: a write as root is taken and changes nothing effective. (The kernel answers EIO; no plain
file can do that for root.) ``smp_affinity`` does not follow ``smp_affinity_list``. A requested vector has its folder in /proc/irq, one that
is only allocated stands in msi_irqs alone.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand

from .machine import Function, Machine, Vector
from .tree import Tree

WORKQUEUES = "/sys/devices/virtual/workqueue"
BUS = "/sys/bus/pci"
NAMES = {"hns3": "net/eth0", "mlx5_core": "net/eth0", "nvme": "nvme/nvme0"}
"""The folders by which functions of these drivers get their names; no machine has two of one."""


def write(tree: Tree, machine: Machine) -> None:
    everywhere = machine.mask(machine.online_list)
    tree.write("/proc/irq/default_smp_affinity", everywhere, volatile=True)
    for function in machine.functions:
        _write_function(tree, machine, function)
        near = machine.near(function.node)
        mask = machine.mask(near)
        for vector in function.vectors:
            if vector.name is not None:
                _write_vector(tree, function, vector, near, mask)
    _write_table(tree, machine)
    unbound = compress(set(machine.online) - set(expand(machine.isolated)))
    tree.write(WORKQUEUES + "/cpumask", machine.mask(unbound), volatile=True)
    for chip in machine.chips_on_bus:
        queue = "%s/dev%d_sq_send_wq" % (WORKQUEUES, chip.phy)
        tree.write(queue + "/cpumask", everywhere, volatile=True)
        tree.write(queue + "/per_cpu", 0)
        tree.write(queue + "/nice", -20)


def _write_vector(tree: Tree, function: Function, vector: Vector, near: str, mask: str) -> None:
    folder = "/proc/irq/%d" % vector.irq
    tree.write(folder + "/smp_affinity", mask, volatile=True)
    tree.write(folder + "/node", function.node)
    if vector.managed:
        tree.write(folder + "/smp_affinity_list", near, mode=0o444)
        tree.write(folder + "/effective_affinity_list", expand(near)[0])
    else:
        tree.write(folder + "/smp_affinity_list", near, volatile=True)
        tree.link(folder + "/effective_affinity_list", folder + "/smp_affinity_list")


def _write_table(tree: Tree, machine: Machine) -> None:
    """Write /proc/interrupts: one column of counts per online CPU, the name last. The words between differ by architecture and kernel."""
    online = machine.online
    none = "%11d" % 0 * len(online)
    arm = machine.architecture == "aarch64"
    lines = [" " * 10 + "".join("%-11s" % ("CPU%d" % cpu) for cpu in online)]
    lines.append("    3:%s     GICv3  27 Level     arch_timer" % none if arm else "    0:%s   IO-APIC    2-edge      timer" % none)
    vectors = [(vector, function) for function in machine.functions for vector in function.vectors if vector.name is not None]
    for vector, function in sorted(vectors, key=lambda entry: entry[0].irq):
        lines.append("%5d:%s%s  %s" % (vector.irq, none, _kind(machine, function, vector), vector.name))
    end = " IPI0:%s  Rescheduling interrupts" if arm else "  LOC:%s  Local timer interrupts\n  ERR:          0"
    lines.append(end % none)
    tree.write("/proc/interrupts", "\n".join(lines))


def _kind(machine: Machine, function: Function, vector: Vector) -> str:
    index = vector.irq - function.vectors[0].irq
    new = int(machine.kernel.split(".")[0]) >= 6
    if machine.architecture == "aarch64":
        return "  ITS-PCI-MSIX-%s %5d Edge    " % (function.bdf, index) if new else "   ITS-MSI %9d Edge    " % (101187584 + vector.irq)
    return "  IR-PCI-MSIX-%s %4d-edge    " % (function.bdf, index) if new else "  IR-PCI-MSI %9d-edge    " % (26214400 + vector.irq)


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
