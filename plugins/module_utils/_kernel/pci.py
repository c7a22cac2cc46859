# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerators on the PCI bus: what sysfs says about them, whatever the vendor's tools say.

Vendor and device ids: the Ascend driver's PCI tables and the PCI id repository. A class alone proves nothing: Kunpeng CPUs have
compression and cipher engines of the same class and vendor, and management controllers have displays.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterator

from .._host.host import Host

if TYPE_CHECKING:
    from .._base.documents import PciDevice

DEVICE_FOLDER = "/sys/bus/pci/devices"
NODES_WITH_CPUS = "/sys/devices/system/node/has_cpu"
ASCEND, NVIDIA = 0x19E5, 0x10DE
ASCEND_FAMILIES = {0xD100: "310", 0xD107: "310", 0xD500: "310p", 0xD801: "910", 0xD802: "a2", 0xD803: "a3", 0xD806: "a5"}
_FOR_GUESTS = re.compile(r"vfio|\Apci-stub\Z|\Axen-pciback\Z|\A(?:uio_pci_generic|igb_uio)\Z")
"""Drivers that hold a function for a virtual machine or a program in user space."""
PROCESSING_ACCELERATOR, DISPLAY, DISPLAY_3D = 0x1200, 0x0300, 0x0302


def numa_node(host: Host, pci: str) -> int | None:
    """Return the NUMA node of a PCI function, or None when the kernel does not know one or has no such function.

    Where the kernel says -1, as in many virtual machines, the only node with CPUs is the node of every function.
    """
    node = host.read_number("%s/%s/numa_node" % (DEVICE_FOLDER, pci))
    if node is None or node >= 0:
        return node
    return host.read_number(NODES_WITH_CPUS)


def driver_of(host: Host, folder: str) -> str:
    """Return the driver that is bound to a function, or ''. An archive has the folder's text alone."""
    lines = (host.read(folder + "/uevent") or "").splitlines()  # first, so that an archive gets it
    link = host.path(folder + "/driver")
    if os.path.islink(link):
        return os.path.basename(os.path.realpath(link))
    return next((line[len("DRIVER=") :] for line in lines if line.startswith("DRIVER=")), "")


def functions(host: Host) -> Iterator[tuple[str, str, int]]:
    """Yield the functions of the bus in its order, each with its folder and its class (PCI code and ID assignment specification)."""
    for pci in host.names(DEVICE_FOLDER):
        folder = "%s/%s" % (DEVICE_FOLDER, pci)
        yield pci, folder, (host.read_number(folder + "/class") or 0) >> 8


def accelerators(host: Host) -> tuple[dict[str, PciDevice], list[dict[str, str]]]:
    """Return the Ascend NPUs and NVIDIA GPUs of the bus by their addresses, in bus order, and ``[{pci, family, driver}]`` of
    those that a driver holds for a guest.

    ``pci`` is in the kernel's form (``0000:c1:00.0``), ``family`` one of a2, a3, a5, 310p, 310, 910 and gpu.
    """
    devices: dict[str, PciDevice] = {}
    guests = []
    for pci, folder, device_class in functions(host):
        family = _family(host, folder, device_class)
        driver = driver_of(host, folder) if family else ""
        if family and _FOR_GUESTS.search(driver):
            guests.append({"pci": pci, "family": family, "driver": driver})
        elif family:
            devices[pci] = {"family": family, "numa": numa_node(host, pci)}
    return devices, guests


def _family(host: Host, folder: str, device_class: int) -> str | None:
    if device_class == PROCESSING_ACCELERATOR and host.read_number(folder + "/vendor") == ASCEND:
        return ASCEND_FAMILIES.get(host.read_number(folder + "/device") or 0)
    if device_class in (DISPLAY, DISPLAY_3D) and host.read_number(folder + "/vendor") == NVIDIA:
        return "gpu"
    return None
