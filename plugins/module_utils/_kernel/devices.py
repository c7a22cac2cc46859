# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How drivers number their devices, which is not how npu-smi numbers NPUs. The device files ``/dev/davinci<N>`` and ``/dev/nvidia<N>``
have these numbers.

Ascend's driver tells them in sysfs and in the names of its interrupts (open CANN driver: ``devdrv_sysfs.c``, task scheduler). The devices
of one PCI function follow on each other (``res_drv_mini_v2``: the two chips of a 300I Duo).
"""

from __future__ import annotations

import re
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._host.host import Host
from .interrupts import Vector
from .pci import DEVICE_FOLDER

SQ = "sq_send_trigger_irq"
NUMBERS_OF_FUNCTIONS = "devdrv_sysfs_bdf_to_devid"
_MAILBOX = re.compile(r"^trs-mbox-(\d+)-\d+\Z")
_OLD_ROW = re.compile(r"^\s*([0-9a-f:.]+)\s*-+>\s*(\d+)\s*\Z", re.IGNORECASE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
Device = Tuple[Optional[int], List[Vector]]
"""The driver's number of a device, None where it does not tell, and the vectors of it."""


def files(host: Host, kind: str) -> list[int]:
    """Return the numbers of the device files of a kind, ascending."""
    names = host.names("/dev", kind + "[0-9]*")
    return sorted(int(name[len(kind) :]) for name in names if name[len(kind) :].isdecimal())


def minor(host: Host, pci: str) -> int | None:
    """Return the number in the name of a GPU's device file, which its driver tells and which need not be that of nvidia-smi."""
    match = _MINOR.search(host.read("/proc/driver/nvidia/gpus/%s/information" % pci.lower()) or "")
    return int(match.group(1)) if match else None


def numbers_of_functions(host: Host, functions: Iterable[str]) -> dict[str, list[int]]:
    """Return ``{PCI function: numbers of its devices, ascending}`` as Ascend's driver tells them in sysfs, where only root can read them.

    Each function has a file for all of them, without PCI domains: a bus and slot that two domains have is left out.
    """
    wanted = sorted(functions)
    short = [pci.partition(":")[2] for pci in wanted]
    texts = (host.read("%s/%s/%s" % (DEVICE_FOLDER, pci, NUMBERS_OF_FUNCTIONS)) for pci in wanted)
    numbers: dict[str, set[int]] = {}
    titles: list[str] = []
    for line in next(filter(None, texts), "").splitlines():
        words = line.lower().split()
        old = _OLD_ROW.match(line)
        row = {"bdf": old.group(1).lower(), "udevid": old.group(2)} if old else dict(zip(titles, words))
        if "bdf" in words and "udevid" in words:
            titles = words
        elif row.get("udevid", "").isdecimal():
            numbers.setdefault(row["bdf"], set()).add(int(row["udevid"]))
    return {pci: sorted(numbers[name]) for pci, name in zip(wanted, short) if name in numbers and short.count(name) == 1}


def share_out(npus: Sequence[Mapping[str, Any]], vectors: list[Vector]) -> list[tuple[Mapping[str, Any], int | None, list[Vector]]]:
    """Return ``[(npu, device number, vectors)]`` for the NPUs of one PCI function, in the order given.

    One NPU alone has all vectors. Two chips of a card can share a function (300I Duo); NPUs and the driver's devices are then matched
    by physical id, and those left over in the order of chips and numbers. Where there are fewer devices than chips the later chips get no
    vectors. A number is None where neither the interrupts of the function nor the physical id of one of its NPUs tell it.
    """
    devices = _devices(vectors)
    if len(npus) == 1 and len(devices) < 2:
        devices = [(number, vectors) for number, _vectors in devices] or [(None, vectors)]
    ordered = sorted(npus, key=lambda npu: (npu.get("chip") or 0, npu["id"]))
    matched = {npu["id"]: device for device in devices for npu in npus if device[0] is not None and device[0] == npu.get("phy_id")}
    if not matched and len(devices) > len(npus):
        devices = [devices[chip] for chip in sorted({npu.get("chip") or 0 for npu in npus}) if chip < len(devices)]
    remaining = [device for device in devices if device not in matched.values()]
    matched.update(zip([npu["id"] for npu in ordered if npu["id"] not in matched], remaining))
    numbers = {npu["id"]: _number(npu, matched.get(npu["id"], (None, []))[0], len(npus) == len(devices) == 1) for npu in npus}
    first = next((number - (npu.get("chip") or 0) for npu in npus for number in [numbers[npu["id"]]] if number is not None), None)
    if first is not None:
        numbers = {npu["id"]: first + (npu.get("chip") or 0) if numbers[npu["id"]] is None else numbers[npu["id"]] for npu in npus}
    return [(npu, numbers[npu["id"]], matched.get(npu["id"], (None, []))[1]) for npu in npus]


def _number(npu: Mapping[str, Any], number: int | None, alone: bool) -> int | None:
    """Return the number of an NPU by that of its device. The only device of a function can be that of a first chip that is lost."""
    physical: int | None = npu.get("phy_id")
    if number is None:
        return physical
    second = number + (npu.get("chip") or 0)
    return second if alone and (npu.get("family") == "310p" or second == physical) else number


def _devices(vectors: Iterable[Vector]) -> list[Device]:
    """Return ``[(number or None, vectors)]``, ascending: a mailbox interrupt starts a device and tells its number; else an SQ does."""
    has_mailbox = any(_MAILBOX.match(vector.name) for vector in vectors)
    devices: dict[int, list[Vector]] = {}
    current = None
    for vector in vectors:
        match = _MAILBOX.match(vector.name)
        if match:
            current = int(match.group(1))
        elif not has_mailbox and vector.name == SQ:
            current = len(devices)
        if current is not None:
            devices.setdefault(current, []).append(vector)
    return [(number if has_mailbox else None, devices[number]) for number in sorted(devices)]
