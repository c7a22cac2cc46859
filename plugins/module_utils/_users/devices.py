# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device files of accelerators: whose each is, and which of them a process has open. Reads only."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
from typing import Any, Iterable, Mapping

from .._host.host import Host
from .._base.device_files import NAME, parts
from .._kernel.devices import minor, share_out
from .._kernel.interrupts import interrupt_names, requested
from .._base.findings import Device

_DEVICE = re.compile(r"/dev/(%s)\Z" % NAME)
_ELSEWHERE = re.compile(r"/%s(?: \(deleted\))?\Z" % NAME).search
"""A device file outside /dev, as a container that has the host's /dev in another place sees it."""


def owners(host: Host, npus: Iterable[Mapping[str, Any]]) -> dict[str, Device]:
    """Return ``{name: key}`` of the device files below ``/dev`` of entries of a plan or topology: ``davinci<N>`` and ``nvidia<N>``.

    N is the number in the register of a topology. Of an entry of a plan, it is the one that the driver tells now, else the physical id; a
    GPU whose driver does not tell it has its index. Hard vNPUs belong to their NPU: ``vdavinci<id>``, ``davinci<id>`` in containers.
    """
    names = interrupt_names(host)
    functions: dict[str, list[Mapping[str, Any]]] = {}
    devices = {}
    for npu in npus:
        pci = (npu.get("pci") or "").lower()
        if npu.get("device"):
            devices[posixpath.basename(npu["device"]["file"] or "")] = Device.of(npu)
        elif Device.of(npu).kind == "gpu":
            number = minor(host, pci)
            devices["nvidia%d" % (npu["id"] if number is None else number)] = Device.of(npu)
        else:
            functions.setdefault(pci, []).append(npu)
    shares = [share for pci, members in functions.items() for share in share_out(members, requested(host, pci, names) if pci else [])]
    by_witness = sorted(shares, key=lambda share: bool(share[2]))  # what interrupts tell comes last, and wins
    devices.update(("davinci%d" % number, Device.of(npu)) for npu, number, _own in by_witness if number is not None)
    devices.pop("", None)
    for name, device in list(devices.items()):
        if name.startswith("davinci"):
            devices.update(("%s%d" % (kind, part), device) for part in parts(int(name[7:])) for kind in ("davinci", "vdavinci"))
    return devices


def numbers(host: Host) -> dict[int, str]:
    """Return ``{device number: name}`` of the running machine's device files, by which they are known whatever a container calls them.

    Empty for another tree, where device files cannot be: there the paths of open files tell.
    """
    files = {}
    for name in filter(re.compile(NAME + r"\Z").match, host.names("/dev") if host.live else ()):
        with contextlib.suppress(OSError):
            state = os.stat(host.path("/dev/" + name))
            if stat.S_ISCHR(state.st_mode):
                files[state.st_rdev] = name
    return files


def opened(host: Host, pid: int, files: Mapping[int, str]) -> dict[str, str]:
    """Return the device files that a process has open: ``{number of the open file: name of the device file on the host}``.

    ``files`` is a result of :func:`numbers`. Most files of most processes are none, and are known by the text of their link: a device file
    has another path than ``/dev/...`` only where its name is still that of the driver.
    """
    devices = {}
    folder = "/proc/%d/fd" % pid
    place = host.path(folder)
    for name in host.names(folder):
        path = "%s/%s" % (place, name)
        try:
            target = os.readlink(path)
            if target == "/dev/null" or not (target.startswith("/dev/") or _ELSEWHERE(target)):
                continue
            match = _DEVICE.match(target)
            device = files.get(os.stat(path).st_rdev) if host.live else match and match.group(1)
        except OSError:
            continue
        if device:
            devices[name] = device
    return devices
