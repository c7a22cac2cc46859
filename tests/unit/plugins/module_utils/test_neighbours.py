# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which interrupts of network and storage devices a host has."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._kernel.neighbours import neighbours

BUS = "/sys/bus/pci/devices/"
NIC, DISK, SAS, OFF, BRIDGE, NPU, VIRTIO = ("0000:7d:00.%d" % number for number in range(7))


def function(tree, pci, pci_class, driver, masks, names=()):
    """Write a PCI function with an interrupt for each mask, a vector that nobody requested for None, and empty folders by ``names``."""
    first = 100 * (int(pci[-1]) + 1)
    files = {"class": pci_class, "numa_node": "0", "uevent": "DRIVER=%s\nPCI_ID=1" % driver, **{name + "/uevent": "" for name in names}}
    files.update({"msi_irqs/%d" % (first + place): "msix" for place in range(len(masks))})
    tree.write({BUS + pci + "/" + name: text for name, text in files.items()})
    requested = {first + place: mask for place, mask in enumerate(masks) if mask is not None}
    tree.write({"/proc/irq/%d/smp_affinity_list" % irq: mask for irq, mask in requested.items()})
    return ["%d: 0 0 ITS-MSI 1 Edge %s-%d" % (irq, driver, irq) for irq in requested]


def test_devices_are_counted_by_where_their_interrupts_may_run(tree):
    lines = function(tree, NIC, "0x020000", "hns3", ["0-3", "0-3", "0", "1", "1", "2", None, "4-7"], ["net/enp1"])
    lines += function(tree, DISK, "0x010802", "nvme", ["5"], ["nvme/nvme3"])
    lines += function(tree, SAS, "0x010700", "hisi_sas", ["0-7"])
    lines += function(tree, OFF, "0x020000", "hinic", [None, None], ["net/enp2"])
    lines += function(tree, BRIDGE, "0x060400", "pcieport", ["0-7"])
    lines += function(tree, NPU, "0x120000", "devdrv", ["0-7"])
    lines += function(tree, VIRTIO, "0x010000", "virtio-pci", ["6"], ["virtio0/block/vda"])
    tree.write({"/proc/interrupts": "   CPU0 CPU1\n" + "\n".join(lines) + "\n"})
    common = {"numa": 0}
    assert neighbours(tree.host) == [
        {"pci": NIC, "name": "enp1", "driver": "hns3", **common, "irqs": 7, "shared": {"0-3": 2, "4-7": 1}, "single": ["0-2", "1"]},
        {"pci": DISK, "name": "nvme3", "driver": "nvme", **common, "irqs": 1, "shared": {}, "single": ["5"]},
        {"pci": SAS, "name": SAS, "driver": "hisi_sas", **common, "irqs": 1, "shared": {"0-7": 1}, "single": []},
        {"pci": VIRTIO, "name": "vda", "driver": "virtio-pci", **common, "irqs": 1, "shared": {}, "single": ["6"]},
    ]


def test_a_host_without_such_devices_has_none(tree):
    function(tree, NPU, "0x120000", "devdrv", ["0-7"])
    assert neighbours(tree.host) == []
