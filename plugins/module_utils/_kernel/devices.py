# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the NPU driver numbers its devices, which is not how npu-smi numbers NPUs: as the names of its interrupts tell (open CANN driver,
task scheduler). The device files ``/dev/davinci<N>`` have the same numbers."""

from __future__ import annotations

import re
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

from .interrupts import Vector

SQ = "sq_send_trigger_irq"
_MAILBOX = re.compile(r"^trs-mbox-(\d+)-\d+\Z")
Device = Tuple[Optional[int], List[Vector]]
"""The driver's number of a device, None where it does not tell, and the vectors of it."""


def share_out(npus: Sequence[Mapping[str, Any]], found: list[Vector]) -> list[tuple[Mapping[str, Any], int, list[Vector]]]:
    """Return ``[(npu, device number, vectors)]`` for the NPUs of one PCI function, in the order given.

    One NPU alone has all vectors. Two chips of a card can share a function (300I Duo); NPUs and the driver's devices are then matched
    by number, and those left over in the order of chips and numbers. Where there are fewer devices than chips the later chips get no
    vectors, and numbers that follow on. Both are assumptions: no source tells how the driver numbers the devices of such a card.
    """
    devices = _devices(found)
    if len(npus) == 1 and len(devices) < 2:
        devices = [(number, found) for number, _own in devices] or [(None, found)]
    ordered = sorted(npus, key=lambda npu: (npu.get("chip") or 0, npu["id"]))
    matched = {npu["id"]: device for device in devices for npu in npus if device[0] == _expected_number(npu)}
    left = [device for device in devices if device not in matched.values()]
    matched.update(zip([npu["id"] for npu in ordered if npu["id"] not in matched], left))
    numbers = {key: number for key, (number, _own) in matched.items() if number is not None}
    first = next((npu for npu in ordered if npu["id"] in numbers), None)
    shares = []
    for npu in npus:
        number = numbers.get(npu["id"])
        if number is None:
            number = _expected_number(npu)
            if first and npu.get("phy_id") is None:
                number = numbers[first["id"]] + ordered.index(npu) - ordered.index(first)
        shares.append((npu, number, matched[npu["id"]][1] if npu["id"] in matched else []))
    return shares


def _expected_number(npu: Mapping[str, Any]) -> int:
    return int(npu["id"] if npu.get("phy_id") is None else npu["phy_id"])


def _devices(found: Iterable[Vector]) -> list[Device]:
    """Return ``[(number or None, vectors)]``, ascending: a mailbox interrupt starts a device and tells its number; else an SQ does."""
    named = any(_MAILBOX.match(vector.name) for vector in found)
    devices: dict[int, list[Vector]] = {}
    current = None
    for vector in found:
        match = _MAILBOX.match(vector.name)
        if match:
            current = int(match.group(1))
        elif not named and vector.name == SQ:
            current = len(devices)
        if current is not None:
            devices.setdefault(current, []).append(vector)
    return [(number if named else None, devices[number]) for number in sorted(devices)]
