# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the output of nvidia-smi, for fleets with both kinds of accelerators.

A value that was not printed, ``N/A`` and everything in brackets (``[Not Supported]``) are None. A text without the
expected table raises ValueError naming its first line, which is where nvidia-smi says what is wrong with the driver.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ._smi.text import cpulist_of, first_line, lines_of, number_of, pci_of, value_of

if TYPE_CHECKING:
    from typing import Dict, TypedDict

    GpuRow = TypedDict("GpuRow", {"label": str, "affinity": str | None, "numa": str | None, "links": Dict[str, str]})
    CsvRow = TypedDict("CsvRow", {"index": int | None, "uuid": str | None, "pci": str | None, "name": str | None, "memory_mib": int | None})

_DEVICE_LABEL = re.compile(r"GPU[0-9]+\Z")
_TITLE = re.compile(r"GPU NUMA ID|(?:CPU|NUMA) Affinity|\S+")
_CLOSEST = re.compile(r"NUMA IDs? of (?:the )?closest CPU:\s*(\S+)\s*\Z")
_LISTED = re.compile(r"GPU (\d+):.*\(UUID: (GPU-[\w-]+)\)")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[\w/-]+)\)")
_CSV_NAMES = {
    "mig.mode.current": "mig",
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "pci",
    "gpu_bus_id": "pci",
    "name": "name",
    "gpu_name": "name",
    "memory.total": "memory_mib",
    "pid": "pid",
}


def parse_nvidia_topo(text: str) -> list[GpuRow]:
    """Return the GPUs of ``nvidia-smi topo -m``.

    ``affinity`` is a cpulist, which the tool itself may have cut short; ``numa`` is text as printed; ``links`` maps
    the label of every GPU column to the link (NICs are left out).
    """
    titles = None
    devices = []
    for line in lines_of(text):
        words = line.split()
        if not words or not _DEVICE_LABEL.match(words[0]):
            continue
        if "Affinity" in words or all(map(_DEVICE_LABEL.match, words)):
            titles = _TITLE.findall(line)
        elif titles:
            devices.append(_topo_row(line, titles))
    if titles is None:
        raise ValueError("nvidia-smi topo -m: no header with GPU0 in its output, which begins with '%s'" % first_line(text))
    return devices


def _topo_row(line: str, titles: list[str]) -> GpuRow:
    tabs = "\t" in line.strip()
    label, *cells = (cell.strip() for cell in (line.strip().split("\t") if tabs else line.split()))
    row = dict(zip(titles, cells))
    affinity, numa = row.get("CPU Affinity", ""), row.get("NUMA Affinity", "")
    if not tabs and len(cells) < len(titles) and number_of(affinity) is not None:
        # A lone number in a short row without tabs may be the CPU or the NUMA node: an empty cell left no trace.
        affinity = numa = ""
    links = {title: link for title, link in row.items() if _DEVICE_LABEL.match(title)}
    return {"label": label, "affinity": cpulist_of(affinity), "numa": value_of(numa), "links": links}


def parse_nvidia_closest(text: str) -> str | None:
    """Return the NUMA nodes, as a cpulist, whose CPUs are closest to a GPU by ``nvidia-smi topo -C -M -i N``; None for ``N/A``."""
    for line in lines_of(text):
        match = _CLOSEST.search(line)
        if match:
            return cpulist_of(match.group(1))
    raise ValueError("nvidia-smi topo -C: no 'NUMA IDs of closest CPU' in its output, which begins with '%s'" % first_line(text))


def parse_nvidia_list(text: str) -> dict[int, list[str]]:
    """Return the UUIDs of the MIG devices of each GPU that ``nvidia-smi -L`` lists, by its index."""
    uuids: dict[int, list[str]] = {}
    for line in lines_of(text):
        gpu, part = _LISTED.match(line), _MIG.match(line)
        if gpu:
            uuids[int(gpu.group(1))] = []
        elif part and uuids:
            uuids[max(uuids)].append(part.group(1))
    if not uuids:
        raise ValueError("nvidia-smi -L: no GPU in its output, which begins with '%s'" % first_line(text))
    return uuids


def parse_nvidia_csv(text: str) -> list[CsvRow]:
    """Return the GPUs of ``nvidia-smi --query-gpu=... --format=csv``.

    Values come with units or without; the header line is needed, and a column that was not asked for is None.
    """
    return [
        {
            "index": number_of(row.get("index") or ""),
            "uuid": row.get("uuid"),
            "pci": pci_of(row.get("pci") or ""),
            "name": row.get("name"),
            "memory_mib": number_of((row.get("memory_mib") or "").partition(" ")[0]),
        }
        for row in _csv_rows(text)
    ]


def parse_nvidia_mig(text: str) -> set[int | None]:
    """Return the indexes of the GPUs in MIG mode by ``nvidia-smi --query-gpu=index,mig.mode.current --format=csv``."""
    return {number_of(row.get("index") or "") for row in _csv_rows(text) if row.get("mig") == "Enabled"}


def parse_nvidia_apps(text: str) -> dict[int, set[str]]:
    """Return ``{process: PCI functions}`` by ``nvidia-smi --query-compute-apps=pid,gpu_bus_id --format=csv``."""
    functions: dict[int, set[str]] = {}
    for row in _csv_rows(text):
        pid, pci = number_of(row.get("pid") or ""), pci_of(row.get("pci") or "")
        if pid is not None and pci:
            functions.setdefault(pid, set()).add(pci)
    return functions


def _csv_rows(text: str) -> list[dict[str, str | None]]:
    names = None
    rows = []
    for line in lines_of(text):
        cells = [cell.strip() for cell in line.split(",")]
        if names is None:
            columns = [_CSV_NAMES.get(cell.partition("[")[0].strip()) for cell in cells]
            names = columns if any(columns) else None
            continue
        row = {name: value_of(cell) for name, cell in zip(names, cells) if name}
        if any(row.values()) and ("index" not in row or number_of(row["index"] or "") is not None):
            rows.append(row)
    if names is None:
        raise ValueError(
            "nvidia-smi --query-gpu: no header with 'index' or 'name' in its output, which begins with '%s'" % first_line(text)
        )
    return rows
