# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device files of accelerators: which each NPU and GPU has, how that is known, and which of them a process has open.

Logic ids close up when a card drops off the bus, and the numbers of most products do not: a logic id says nothing about a device file,
unless the files count up from 0 without a gap, one for each NPU.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
from collections import Counter
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .._base.cpulist import compress
from .._base.device_files import DAVINCI, NAME, NVIDIA, VDAVINCI, parts
from .._base.findings import Device
from .._host.host import Host
from .._kernel.devices import files as file_numbers, minor, numbers_of_functions, share_out
from .._kernel.interrupts import interrupt_names, requested
from .._kernel.pci import DEVICE_FOLDER, driver_of
from .._npu_smi import parse_phyid_remap, parse_vnpu_info
from .._smi.tool import Tool

if TYPE_CHECKING:
    from .._base.documents import Npu

Accelerator = Mapping[str, Any]
"""An NPU or GPU of a plan or topology."""
Numbers = Mapping[int, int]
"""Numbers of device files by logic id."""
NPU_SMI, SYSFS, INTERRUPTS, UNKNOWN = "npu-smi", "sysfs", "interrupts", "unknown"
_DEVICE = re.compile(r"/dev/(%s)\Z" % NAME)
_ELSEWHERE = re.compile(r"/%s(?: \(deleted\))?\Z" % NAME).search
"""A device file outside /dev, as a container that has the host's /dev in another place sees it."""


def owners(host: Host, npus: Iterable[Accelerator]) -> dict[str, Device]:
    """Return ``{name: device}`` of the device files below ``/dev``: ``davinci<N>`` and ``nvidia<N>``.

    N is the number in the register of a topology. Of an entry of a plan, it is the one that the driver tells now, else the physical id; a
    GPU whose driver does not tell it has its index. Hard vNPUs belong to their NPU: ``vdavinci<id>``, ``davinci<id>`` in containers.
    """
    names = interrupt_names(host)
    functions: dict[str, list[Accelerator]] = {}
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
    devices.update(("davinci%d" % number, Device.of(npu)) for npu, number, _vectors in by_witness if number is not None)
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


def register_npus(host: Host, npus: Sequence[Npu], tool: Tool | None, problems: list[str]) -> None:
    """Give each NPU its ``device`` and ``driver``, and its physical id, which is the number of the device file.

    Where neither physical ids that npu-smi printed, nor sysfs, nor interrupts tell a number, this queries npu-smi for each device file.
    """
    if not npus:
        return
    functions: dict[str, list[Npu]] = {}
    for npu in npus:
        if npu["pci"]:
            functions.setdefault(npu["pci"], []).append(npu)
    sources = {
        NPU_SMI: {npu["id"]: npu["phy_id"] for npu in npus if npu["phy_id"] is not None},
        SYSFS: _by_sysfs(host, functions),
        INTERRUPTS: _by_interrupts(host, functions),
    }
    numbers = _numbers(npus, sources, problems)
    if tool and len(numbers) < len(npus):
        unknown = [npu for npu in npus if npu["id"] not in numbers]
        numbers.update(_remapped(tool, unknown, set(file_numbers(host, DAVINCI)) - {number for number, _by in numbers.values()}))
    _register(host, npus, numbers, DAVINCI, problems)
    split = file_numbers(host, VDAVINCI)
    for npu in npus:
        npu["phy_id"] = npu["device"]["number"]
        parts_of_npu = [] if npu["phy_id"] is None else [number for number in split if number in parts(npu["phy_id"])]
        npu["parts"] = _parts(tool, npu, parts_of_npu) if parts_of_npu else []


def _parts(tool: Tool | None, npu: Npu, ids: Iterable[int]) -> list[dict[str, Any]]:
    """Return the hard vNPUs that an NPU has a device file for, with what npu-smi says of them."""
    words = ("info", "-t", "info-vnpu", "-i", str(npu["card"]), "-c", str(npu["chip"]))
    rows = tool.ask(parse_vnpu_info, *words) if tool else None
    templates = {row["vnpu_id"]: row.get("template") for row in rows or ()}
    return [{"id": number, "file": "/dev/vdavinci%d" % number, "template": templates.get(number)} for number in ids]


def register_gpus(host: Host, gpus: Sequence[Npu], problems: list[str]) -> None:
    minors = {gpu["id"]: minor(host, gpu["pci"]) if gpu["pci"] else None for gpu in gpus}
    numbers = {key: (number, SYSFS) for key, number in minors.items() if number is not None}
    _register(host, gpus, numbers, NVIDIA, problems)


def _register(host: Host, entries: Sequence[Npu], numbers: Mapping[int, tuple[int, str]], kind: str, problems: list[str]) -> None:
    there = file_numbers(host, kind)
    in_order = there == list(range(len(entries))) and all(number == key for key, (number, _by) in numbers.items())
    for entry in entries:
        number, known_by = numbers.get(entry["id"], (entry["id"] if in_order else None, UNKNOWN))
        entry["device"] = {"number": number, "file": None if number is None else "/dev/%s%d" % (kind, number), "known_by": known_by}
        entry["driver"] = driver_of(host, "%s/%s" % (DEVICE_FOLDER, entry["pci"])) or None if entry["pci"] else None
        entry["parts"] = []
        if there and number not in [None, *there]:
            problems.append("%s %d: its device file %s does not exist." % (entry["kind"].upper(), entry["id"], entry["device"]["file"]))


def _numbers(npus: Sequence[Npu], sources: Mapping[str, Numbers], problems: list[str]) -> dict[int, tuple[int, str]]:
    """Return ``{logic id: (number, source)}`` of the first source that tells, without the numbers of several PCI functions.

    Where another source contradicts the first one, or a number is left out, that is a sentence.
    """
    known_numbers: dict[int, tuple[int, str]] = {}
    for source, numbers in sources.items():
        for key, number in numbers.items():
            first, by = known_numbers.setdefault(key, (number, source))
            if first != number:
                text = "NPU %d: its device file is davinci%d by %s and davinci%d by %s; the first is taken."
                problems.append(text % (key, first, by, number, source))
    functions = {(known_numbers[npu["id"]][0], npu["pci"] or npu["id"]) for npu in npus if npu["id"] in known_numbers}
    twice = [number for number, times in Counter(number for number, _pci in functions).items() if times > 1]
    if twice:
        problems.append("Several NPUs have the number %s of a device file, so the files of these NPUs are unknown." % compress(twice))
    return {key: (number, by) for key, (number, by) in known_numbers.items() if number not in twice}


def _by_sysfs(host: Host, functions: Mapping[str, Sequence[Npu]]) -> Numbers:
    result: dict[int, int] = {}
    for pci, numbers in numbers_of_functions(host, functions).items():
        for npu in functions[pci]:
            chip = (npu["chip"] or 0) if npu["family"] == "310p" else 0
            result[npu["id"]] = numbers[chip] if chip < len(numbers) else numbers[0] + chip
    return result


def _by_interrupts(host: Host, functions: Mapping[str, Sequence[Npu]]) -> Numbers:
    names = interrupt_names(host)
    unnumbered = {pci: [dict(npu, phy_id=None) for npu in members] for pci, members in functions.items()}
    shares = [share for pci, members in unnumbered.items() for share in share_out(members, requested(host, pci, names))]
    return {npu["id"]: number for npu, number, _vectors in shares if number is not None}


def _remapped(tool: Tool, npus: Iterable[Npu], unknown: Iterable[int]) -> dict[int, tuple[int, str]]:
    """Return ``{logic id: (number, source)}`` of what npu-smi says about the device files that are nobody's yet."""
    of_chip = {(npu["card"], npu["chip"]): npu["id"] for npu in npus}
    result: dict[int, tuple[int, str]] = {}
    for number in sorted(unknown):
        answer = tool.ask(parse_phyid_remap, "info", "-t", "phyid-remap", "-p", str(number), quiet=("unsupported", "invalid"))
        if tool.failure:
            break
        key = (answer["card"], answer["chip"] or 0) if answer else None
        if key in of_chip:
            result[of_chip[key]] = (number, NPU_SMI)
    return result
