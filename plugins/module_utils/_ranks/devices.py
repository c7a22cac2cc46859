# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators that a process can open, on the host or in a container, and their entries of the plan.

A container has device files of some of them only, with the numbers of the host, and its runtime numbers these from 0 on. A cgroup can deny
the others (Slurm, ConstrainDevices): access(2) tells that without opening a device (``devcgroup_inode_permission``, Linux
``fs/namei.c``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .._base.device_files import DAVINCI, NVIDIA, device_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._base.documents import PlanEntry

NPU, GPU = "npu", "gpu"
_FILES = {NPU: DAVINCI, GPU: NVIDIA}
_FUNCTIONS = "sys/bus/pci/devices"
_DRIVER = "proc/driver/nvidia/gpus"
_RENUMBERED = "%s %s, and the numbers of device files and NPUs can have changed: bind the host again, or name the NPU with --device"


class Accelerator:
    """A device file with the entry of the plan for its NPU or GPU, None where the plan has none."""

    def __init__(self, file: str, entry: PlanEntry | None, pci: str = "", uuid: str = "", model: str = "") -> None:
        self.file = file
        self.entry = entry
        self.pci = pci
        self.uuid = uuid
        self.model = model


def kind_of(entry: PlanEntry) -> str:
    return GPU if entry.get("kind") == GPU or str(entry.get("slice")).startswith("gpu-") else NPU


def title(entry: PlanEntry) -> str:
    """Return how sentences call an entry of the plan."""
    return "%s %s (%s)" % (kind_of(entry).upper(), entry["id"], entry.get("pci") or "no PCI function")


def named(npus: Sequence[PlanEntry], name: str) -> list[PlanEntry]:
    """Return the entries of a plan that a name can stand for: ``3``, ``npu3``, ``npu-3``, ``npu-3.slice``, or a PCI function.

    The number is that of the slice. On a host with both kinds, a plain number means the NPU.
    """
    wanted = name.lower()
    same = []
    for npu in npus:
        unit = npu.get("slice") or "%s-%s.slice" % (kind_of(npu), npu["id"])
        stem = unit[: -len(".slice")]
        if wanted in (unit, stem, stem.replace("-", "")):
            return [npu]
        pci = str(npu.get("pci") or "").lower()
        if (wanted.isdigit() and stem.endswith("-%d" % int(wanted))) or (pci and wanted in (pci, pci.partition(":")[2])):
            same.append(npu)
    npus_only = [npu for npu in same if kind_of(npu) == NPU]
    return npus_only or same


def there(root: str, kind: str, npus: Sequence[PlanEntry], lost: Sequence[PlanEntry] = ()) -> list[Accelerator]:
    """Return the accelerators of a kind that this process can open, in the order of their logic ids or, of GPUs, of their PCI functions.

    ``npus`` are the entries of the plan, ``lost`` those that were lost when it was made. Raises ``ValueError`` where the NPU or GPU of a
    device file is not known.
    """
    numbers = _numbers(root, _FILES[kind])
    entries, before = ([npu for npu in found if kind_of(npu) == kind] for found in (npus, lost))
    return _npus(root, numbers, entries, before) if kind == NPU else _gpus(root, numbers, [*entries, *before])


def _numbers(root: str, stem: str) -> list[int]:
    folder = os.path.join(root, "dev")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    numbers = [int(name[len(stem) :]) for name in names if name.startswith(stem) and name[len(stem) :].isdecimal()]
    return [number for number in sorted(numbers) if os.access("%s/%s%d" % (folder, stem, number), os.R_OK | os.W_OK)]


def _npus(root: str, numbers: Sequence[int], entries: Sequence[PlanEntry], lost: Sequence[PlanEntry]) -> list[Accelerator]:
    by_number = {entry["phy_id"]: entry for entry in entries if entry.get("phy_id") is not None}
    if not by_number and len(numbers) == len(entries):
        by_number = dict(zip(numbers, sorted(entries, key=lambda entry: entry["id"])))
    for number, entry in by_number.items():
        if number in numbers and _is_gone(root, entry):
            raise ValueError(_RENUMBERED % (title(entry), "dropped off the PCI bus"))
    left = [entry["phy_id"] for entry in lost if entry.get("phy_id") not in (None, *by_number) and _is_gone(root, entry)]
    for entry in lost:
        back = entry.get("phy_id") is not None and not _is_gone(root, entry)
        if back and by_number.setdefault(entry["phy_id"], entry) is not entry:
            raise ValueError(_RENUMBERED % (title(entry), "is on the PCI bus again"))
    found = []
    for number in numbers:
        if number not in left:
            found.append(Accelerator("/dev/davinci%d" % number, by_number.get(number, by_number.get(device_of(number)))))
    return found


def _is_gone(root: str, entry: PlanEntry) -> bool:
    """Whether the function of an NPU is not on the PCI bus, as far as this process sees the bus."""
    folder = os.path.join(root, _FUNCTIONS)
    return bool(entry.get("pci")) and os.path.isdir(folder) and not os.path.exists("%s/%s" % (folder, entry["pci"]))


def _gpus(root: str, minors: Sequence[int], entries: Sequence[PlanEntry]) -> list[Accelerator]:
    by_function = {str(entry.get("pci")).lower(): entry for entry in entries}
    folder = os.path.join(root, _DRIVER)
    functions = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    told = {pci: _information("%s/%s/information" % (folder, pci)) for pci in functions}
    by_minor = {of.get("Device Minor"): pci for pci, of in told.items()}
    if minors and not told and len(minors) == len(entries):
        return [Accelerator("/dev/nvidia*", by_function[pci], pci) for pci in sorted(by_function)]
    found = []
    for minor in minors:
        pci = by_minor.get(str(minor))
        if pci is None:
            raise ValueError("the driver does not show which GPU /dev/nvidia%d is (/%s); name the GPU with --device" % (minor, _DRIVER))
        of = told[pci]
        file = "/dev/nvidia%d" % minor
        found.append(Accelerator(file, by_function.get(pci.lower()), pci, of.get("GPU UUID", ""), of.get("Model", "")))
    return sorted(found, key=lambda gpu: gpu.pci)


def _information(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _colon, value in pairs}
