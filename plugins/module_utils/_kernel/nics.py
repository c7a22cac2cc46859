# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network and storage functions on the PCI bus, whose interrupts may share CPUs with the pools of accelerators, and their queues.

The names of interrupts of queues are those that drivers request (Linux ``drivers/net``): ``hns3-<pci>-TxRx-0``, ``ice-eth0-TxRx-0``,
``eth0-TxRx-0`` (bnxt), ``eth0_qp0`` and ``eth0_rxq0`` (hinic, hinic3), ``mlx5_comp0@pci:<pci>``, ``virtio0-input.0``, and
``virtio0-virtqueues`` for all queues together where the device has few vectors. Others, such as those for events, are no matter of load.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from .._base.cpulist import compress, from_mask
from .._host.host import Host
from .interrupts import Vector, interrupt_names, requested
from .pci import DEVICE_FOLDER, driver_of, functions, numa_node

if TYPE_CHECKING:
    from .._base.documents import Nic

STORAGE, NETWORK, INFINIBAND = 0x01, 0x02, 0x0C06
"""Base classes of PCI's list of class codes, and the class of InfiniBand among the serial buses."""
_NAMES = ("net", "block", "nvme", "infiniband")
DRIVERS = ("hns3", "hinic", "hinic3", "mlx5_core", "bnxt_en", "ice", "virtio-pci")
"""The drivers whose names of interrupts are known."""
_QUEUE = re.compile(r"(?:-(?:TxRx|[TtRr]x)-|_(?:qp|rxq|txq|comp)|-(?:input|output)\.)(\d{1,6})(?:@\S*)?\Z|-virtqueues\Z")
RPS, XPS = "RPS", "XPS"
"""Received packets are handed on to other CPUs; packets to send choose their queue by the CPU that sends them."""
_STEERING = {RPS: ("rx-", "rps_cpus"), XPS: ("tx-", "xps_cpus")}
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
_REPRESENTOR = re.compile(r"pf\d+(vf|sf)\d")
"""The name of a port that stands for a virtual function, of Linux ``net/core/devlink.c``."""


def queue_of(name: str) -> int | None:
    """Return the number of the queue that an interrupt of this name is for, or of the first one, or None."""
    match = _QUEUE.search(name)
    return int(match.group(1) or 0) if match else None


def queue_name(name: str) -> str:
    """Return the name of an interrupt of a queue without that of its interface or function, which can change: ``TxRx-0``."""
    match = _QUEUE.search(name)
    return match.group().lstrip("-_").partition("@")[0] if match else name


def nics(host: Host) -> list[Nic]:
    """Return the network functions that have a driver, in bus order. Virtual functions belong to virtual machines and pods."""
    rows: list[Nic] = []
    for pci, folder, device_class in functions(host):
        is_network = device_class >> 8 == NETWORK or device_class == INFINIBAND
        driver = driver_of(host, folder) if is_network and not host.exists(folder + "/physfn") else ""
        if driver and driver != "vfio-pci":
            name, numa, rdma = name_of(host, folder) or pci, numa_node(host, pci), host.names(folder + "/infiniband")
            rows.append({"pci": pci, "name": name, "driver": driver, "numa": numa, "distances": {}, "rdma": rdma, "near": []})
    return rows


def bridges(host: Host, pci: str) -> list[str]:
    """Return the root and the bridges above a PCI function, and itself, which its path in sysfs has."""
    parts = os.path.realpath(host.path("%s/%s" % (DEVICE_FOLDER, pci))).split("/")
    roots = [place for place, part in enumerate(parts) if _ROOT.match(part)]
    return parts[roots[0] :] if roots else []


def hops(one: Sequence[str], other: Sequence[str]) -> int | None:
    """Return how many bridges lie between two functions, by :func:`bridges`; None where they have not even the root in common."""
    common = len(os.path.commonprefix([list(one), list(other)]))
    return len(one) + len(other) - 2 * common if common else None


def queues(host: Host, pci: str, names: dict[int, str]) -> list[tuple[int, Vector]]:
    """Return ``[(queue, vector)]`` of a function, by the numbers of the vectors."""
    vectors = requested(host, pci, names)
    return [(number, vector) for number, vector in zip((queue_of(vector.name) for vector in vectors), vectors) if number is not None]


def _ports(host: Host, pci: str) -> Iterable[str]:
    """Return the interface of each port of a function: the oldest one, because others stand for virtual functions or partitions."""
    ports: dict[int, str] = {}
    parts = _parts(host, "%s/%s" % (DEVICE_FOLDER, pci))
    interfaces = ("%s/net/%s" % (folder, name) for folder in parts for name in host.names(folder + "/net"))
    for folder in sorted(interfaces, key=lambda folder: host.read_number(folder + "/ifindex") or 0):
        if not _REPRESENTOR.search(host.read(folder + "/phys_port_name") or ""):
            ports.setdefault(host.read_number(folder + "/dev_port") or 0, folder)
    return ports.values()


def steered_cpus(host: Host, pci: str, kind: str) -> set[int]:
    """Return the CPUs of all queues of a function together; none where it is off (Linux ``Documentation/networking/scaling.rst``)."""
    prefix, file = _STEERING[kind]
    folders = ["%s/queues/%s" % (folder, name) for folder in _ports(host, pci) for name in host.names(folder + "/queues", prefix + "*")]
    return {cpu for folder in folders for cpu in from_mask(host.read("%s/%s" % (folder, file)) or "0", folder)}


def managed_disks(host: Host) -> list[str]:
    """Return the names of the NVMe disks that have interrupts, which the kernel places."""
    disks, names = [], interrupt_names(host)
    for pci, folder, device_class in functions(host):
        if device_class >> 8 == STORAGE and driver_of(host, folder) == "nvme" and requested(host, pci, names):
            disks.append("%s (%s)" % (name_of(host, folder) or "NVMe", pci))
    return disks


def neighbours(host: Host) -> list[dict[str, Any]]:
    """Return the network and storage functions that have interrupts, in bus order: ``[{pci, name, driver, numa, irqs, shared, single}]``.

    ``name`` is that of the interface or disk, or the function; ``irqs`` is the number of interrupts that the driver requested. Of these,
    ``shared`` (``{cpulist: number}``) may each run on several CPUs. ``single`` are cpulists with one interrupt for each CPU: most drivers
    have a queue for each CPU, and a server has thousands of them.
    """
    names, rows = interrupt_names(host), []
    for pci, folder, device_class in functions(host):
        if device_class >> 8 not in (STORAGE, NETWORK) and device_class != INFINIBAND:
            continue
        texts = (host.read("/proc/irq/%d/smp_affinity_list" % vector.irq) for vector in requested(host, pci, names))
        masks = list(filter(None, texts))
        if masks:
            row = {"pci": pci, "name": name_of(host, folder) or pci, "driver": driver_of(host, folder), "numa": numa_node(host, pci)}
            shared = dict(Counter(mask for mask in masks if not mask.isdigit()))
            times = Counter(int(mask) for mask in masks if mask.isdigit())
            layers = range(max(times.values(), default=0))  # cpulists that together have each CPU as often as it is counted
            single = [compress({cpu for cpu, count in times.items() if count > layer}) for layer in layers]
            rows.append({**row, "irqs": len(masks), "shared": shared, "single": single})
    return rows


def name_of(host: Host, folder: str) -> str:
    """Return the first name by which users know a function, or ''. Devices of virtio are one folder below it."""
    lists: Iterable[list[str]] = (host.names("%s/%s" % (part, kind)) for part in _parts(host, folder) for kind in _NAMES)
    return next((names[0] for names in lists if names), "")


def _parts(host: Host, folder: str) -> list[str]:
    return [folder] + ["%s/%s" % (folder, name) for name in host.names(folder, "virtio[0-9]*")]
