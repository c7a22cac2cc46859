# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interrupts of network and storage functions, which may share CPUs with the pools of accelerators."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import Any, Iterable

from .._base.cpulist import compress
from .._host.host import Host
from .interrupts import interrupt_names
from .pci import DEVICE_FOLDER, driver_of, numa_node

STORAGE, NETWORK, INFINIBAND = 0x01, 0x02, 0x0C06
"""Base classes of PCI's list of class codes, and the class of InfiniBand among the serial buses."""
_NAMES = ("net", "block", "nvme", "infiniband")


def neighbours(host: Host) -> list[dict[str, Any]]:
    """Return the network and storage functions that have interrupts, in bus order: ``[{pci, name, driver, numa, irqs, shared, single}]``.

    ``name`` is that of the interface or disk, or the function; ``irqs`` is the number of interrupts that the driver requested. Of these,
    ``shared`` (``{cpulist: number}``) may each run on several CPUs. ``single`` are cpulists with one interrupt for each CPU: most drivers
    have a queue for each CPU, and a server has thousands of them.
    """
    functions = [(pci, _interrupts(host, pci)) for pci in host.names(DEVICE_FOLDER)]
    requested = interrupt_names(host) if any(numbers for _pci, numbers in functions) else {}
    found = []
    for pci, numbers in functions:
        masks = [host.read("/proc/irq/%d/smp_affinity_list" % irq) for irq in numbers if irq in requested]
        known = [mask for mask in masks if mask]
        if known:
            folder = "%s/%s" % (DEVICE_FOLDER, pci)
            found.append(
                {
                    "pci": pci,
                    "name": name_of(host, folder) or pci,
                    "driver": driver_of(host, folder),
                    "numa": numa_node(host, pci),
                    "irqs": len(known),
                    "shared": dict(Counter(mask for mask in known if not mask.isdigit())),
                    "single": _layers(Counter(int(mask) for mask in known if mask.isdigit())),
                }
            )
    return found


def _interrupts(host: Host, pci: str) -> list[int]:
    """Return the vectors of a function, also those that its driver does not use; none of one that is neither network nor storage."""
    folder = "%s/%s" % (DEVICE_FOLDER, pci)
    device_class = (host.read_number(folder + "/class") or 0) >> 8
    if device_class >> 8 not in (STORAGE, NETWORK) and device_class != INFINIBAND:
        return []
    return [int(name) for name in host.names(folder + "/msi_irqs") if name.isdigit()]


def name_of(host: Host, folder: str) -> str:
    """Return the first name by which users know a function, or ''. Devices of virtio are one folder below it."""
    folders = [folder] + [posixpath.join(folder, name) for name in host.names(folder, "virtio[0-9]*")]
    named: Iterable[list[str]] = (host.names(posixpath.join(below, kind)) for below in folders for kind in _NAMES)
    return next((names[0] for names in named if names), "")


def _layers(times: Counter[int]) -> list[str]:
    """Return cpulists that together have each CPU as often as it is counted."""
    return [compress({cpu for cpu, count in times.items() if count > layer}) for layer in range(max(times.values(), default=0))]
