# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The framed tables of npu-smi: ``info``, ``info -t template-info`` and ``info -t info-vnpu``.

Widths, frames and columns differ by product and release, and pasted text loses blanks and frame lines. So only the
``|`` and the words of that table's own header decide what a cell means; whatever is not a row is passed over.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from .errors import require_answer
from .text import lines_of, number_of, pci_of, value_of

_FRAME_CHARACTERS = frozenset("|+-= ")
_VERSION = re.compile(r"Version:\s*([^\s|]+)", re.IGNORECASE)
_TOOL_VERSION = re.compile(r"npu-smi\s+([^\s|]+)", re.IGNORECASE)
_COLUMN = re.compile(r"\S+\([^)]*\)")
_FIELD = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_USAGE = re.compile(r"([0-9]{1,18})\s*/\s*([0-9]{1,18})\Z")


def parse_info(text: str) -> dict[str, Any]:
    """Return what ``npu-smi info`` shows: ``{version, chips, processes}``.

    chips: ``[{card, chip, phy_id, logic_id, name, health, pci, memory_total_mib, memory_used_mib}]``, where memory is
    the HBM if the table has that column; processes: ``[{card, chip, pid, name, memory_mib}]``, with chip None where
    the process table names only NPUs. Raises NpuSmiError for an error text, ValueError when there is no table at all.
    """
    parsed, readable = _info(text)
    if not parsed["chips"] and not parsed["processes"]:
        require_answer(readable, text, "npu-smi info", "header with 'Health' or 'Process id'")
    return {key: value for key, value in parsed.items() if key != "damaged"}


def damaged_rows(text: str) -> list[str]:
    """Return the rows of what ``npu-smi info`` shows that are cut short, or whose other line or heading is missing. What they are about is
    not, or not wholly, in :func:`parse_info`."""
    rows: list[str] = _info(text)[0]["damaged"]
    return rows


def _info(text: str) -> tuple[dict[str, Any], bool]:
    """Return ``({version, chips, processes, damaged}, whether a heading was found)``."""
    version = None
    chips: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] = []
    damaged: list[str] = []
    chip_layout = process_layout = above = None
    pending = ""
    is_closed = False
    for line in lines_of(text):
        cells = _cells(line)
        if not cells:
            if line.strip().startswith("..."):
                above = None
            continue
        if is_closed and not _closed(line):
            damaged += [line.strip()] if above or _begins_with_number(cells) else []
            cells = cells[:-1] or cells
        words = [cell.lower() for cell in cells]
        if words[0].startswith("npu-smi "):
            banner = _VERSION.search(line) or _TOOL_VERSION.search(line)
            version = banner.group(1) if banner else None
        elif "process id" in words:
            process_layout, is_closed = _process_layout(words), _closed(line)
        elif "health" in words:
            damaged += [pending] if above else []
            chip_layout, process_layout, above, is_closed = _chip_layout(words), None, None, _closed(line)
        elif process_layout:
            processes.extend(_processes_of_row(cells, process_layout))
            damaged += [line.strip()] if len(cells) <= process_layout["pid"] and _begins_with_number(cells) else []
        elif chip_layout and "bus-id" in words:
            chip_layout.update(_lower_layout(words))
        elif not chip_layout or len(cells) <= _last_cell(chip_layout):
            damaged += [line.strip()] if above or _begins_with_number(cells) else []
            above = None
        elif not _is_lower_row(cells, chip_layout, above):
            damaged += [pending] if above else []
            above, pending = _upper_row(cells, chip_layout), line.strip()
        elif not chip_layout["columns"]:
            damaged.append(line.strip())
            above = None
        elif above:
            chips.append(dict(above, **_lower_row(cells, chip_layout)))
            above = None
    damaged += [pending] if above else []
    parsed = {"version": version, "chips": chips, "processes": processes, "damaged": list(dict.fromkeys(damaged))}
    return parsed, bool(chip_layout or process_layout)


def _cells(line: str) -> list[str]:
    """Return the cells of a row; none for frame lines and for everything that is not a row."""
    line = line.strip()
    if not line.startswith("|") or _FRAME_CHARACTERS.issuperset(line):
        return []
    return [cell.strip() for cell in line[1 : -1 if _closed(line) else None].split("|")]


def _closed(line: str) -> bool:
    """Whether a line ends with a bar. Where the heading does, the last cell of a row that does not is cut, perhaps within a number."""
    return line.rstrip().endswith("|")


def _begins_with_number(cells: Sequence[str]) -> bool:
    """Whether a row begins as those of NPUs do; sentences of the tool do not."""
    return number_of(cells[0].partition(" ")[0]) is not None


def _last_cell(layout: Mapping[str, Any]) -> int:
    """Return the number of the last cell that a row of a chip needs."""
    return max(layout[key] or 0 for key in ("card", "name", "health", "bus", "chip"))


def _cell_with(word: str, words: list[str]) -> int | None:
    """Return the index of the first header cell that has a word, or None."""
    return next((index for index, cell in enumerate(words) if word in cell.split()), None)


def _chip_layout(words: list[str]) -> dict[str, Any]:
    """Return which cell holds what, as far as a chip's upper header line tells; NPU and name share a cell or do not."""
    health = words.index("health")
    card = _cell_with("npu", words) or 0
    name = _cell_with("name", words) or card
    return {"card": card, "name": name, "health": health, "bus": health, "chip": None, "ids": [], "usage": -1, "columns": []}


def _lower_layout(words: list[str]) -> dict[str, Any]:
    chip = _cell_with("chip", words)
    usage = next((index for index, cell in enumerate(words) if "usage" in cell), -1)
    return {
        "bus": words.index("bus-id"),
        "chip": chip,
        "ids": [] if chip is None else [word for word in words[chip].split() if word != "id"],
        "usage": usage,
        "columns": _COLUMN.findall(words[usage]),
    }


def _is_lower_row(cells: list[str], layout: Mapping[str, Any], above: Mapping[str, Any] | None) -> bool:
    """Whether a row is a chip's second line: it has a bus id, or the sign for none right below a first line."""
    if layout["name"] != layout["card"]:
        return not cells[layout["card"]]
    bus = cells[layout["bus"]]
    return pci_of(bus) is not None or (above is not None and value_of(bus) is None)


def _upper_row(cells: list[str], layout: Mapping[str, Any]) -> dict[str, Any] | None:
    card, _blank, name = cells[layout["card"]].partition(" ")
    if layout["name"] != layout["card"]:
        name = cells[layout["name"]]
    if number_of(card) is None:
        return None
    return {"card": number_of(card), "name": value_of(" ".join(name.split())), "health": value_of(cells[layout["health"]])}


def _lower_row(cells: list[str], layout: Mapping[str, Any]) -> dict[str, Any]:
    ids = {} if layout["chip"] is None else dict(zip(layout["ids"], cells[layout["chip"]].split()))
    fields = _FIELD.findall(cells[layout["usage"]]) if layout["usage"] < len(cells) else []
    usage = _USAGE.match(fields[-1]) if fields and len(fields) >= len(layout["columns"]) else None
    return {
        "chip": number_of(ids.get("chip", "0")),
        "phy_id": number_of(ids.get("phy-id", "")),
        "logic_id": number_of(ids.get("device", "")),
        "pci": pci_of(cells[layout["bus"]]),
        "memory_used_mib": int(usage.group(1)) if usage else None,
        "memory_total_mib": int(usage.group(2)) if usage else None,
    }


def _process_layout(words: list[str]) -> dict[str, Any]:
    card = _cell_with("npu", words) or 0
    return {
        "card": card,
        "chip": "chip" in words[card].split(),
        "pid": words.index("process id"),
        "name": _cell_with("name", words),
        "memory": _cell_with("memory(mb)", words),
    }


def _processes_of_row(cells: list[str], layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the process of a row as a list; none for ``No running processes found in NPU 0`` and damaged rows."""
    printed = dict(enumerate(cells))
    ids = printed.get(layout["card"], "").split()
    pid = number_of(printed.get(layout["pid"], ""))
    if not ids or number_of(ids[0]) is None or pid is None:
        return []
    return [
        {
            "card": number_of(ids[0]),
            "chip": number_of(ids[1]) if layout["chip"] and len(ids) > 1 else None,
            "pid": pid,
            "name": printed.get(layout["name"], ""),
            "memory_mib": number_of(printed.get(layout["memory"], "")),
        }
    ]


def parse_template_info(text: str) -> list[dict[str, Any]]:
    """Return the vNPU templates of ``info -t template-info``: ``[{name, aicore, memory_gib, aicpu}]``.

    A template takes two rows; the lower one begins with a number and has no column that is returned.
    """
    header = None
    templates = []
    for line in lines_of(text):
        words = " ".join(_cells(line)).split()
        titles = [word.lower().partition("(")[0] for word in words]
        if "name" in titles and "aicore" in titles:
            header = titles
            continue
        row = dict(zip(header or [], words))
        aicore = number_of(row.get("aicore", ""))
        if aicore is not None and number_of(row["name"]) is None:
            memory = number_of(row.get("memory", ""))
            templates.append({"name": row["name"], "aicore": aicore, "memory_gib": memory, "aicpu": number_of(row.get("aicpu", ""))})
    if not templates:
        require_answer(header, text, "npu-smi info -t template-info", "header with 'Name' and 'AICORE'")
    return templates


def parse_vnpu_cores(text: str) -> int:
    """Return the AI cores of a chip, used ones included, of ``info -t info-vnpu``."""
    header = False
    for line in lines_of(text):
        words = " ".join(_cells(line)).split()
        header = header or "aicore" in [word.lower() for word in words]
        cells = _USAGE.match(words[0]) if header and words else None
        if cells:
            return int(cells.group(2))
    require_answer(False, text, "npu-smi info -t info-vnpu", "row such as '20/20' below AICORE")
    return 0


def parse_vnpu_info(text: str) -> list[dict[str, Any]]:
    """Return the vNPUs of ``info -t info-vnpu``: ``[{vnpu_id, vgroup_id, container_id, status, template}]``.

    Newer releases leave out the list's header when there are none.
    """
    header = None
    total_printed = False
    vnpus = []
    for line in lines_of(text):
        cells = _cells(line)
        titles = [cell.lower() for cell in cells]
        if "vnpu id" in titles:
            header = titles
        elif header:
            row = dict(zip(header, cells))
            if number_of(row.get("vnpu id", "")) is not None:
                vnpus.append(
                    {
                        "vnpu_id": number_of(row["vnpu id"]),
                        "vgroup_id": number_of(row.get("vgroup id", "")),
                        "container_id": value_of(row.get("container id", "")),
                        "status": number_of(row.get("status", "")),
                        "template": value_of(row.get("template name", "")),
                    }
                )
        elif cells and titles[0].startswith("total number of vnpu"):
            total_printed = True
    if not vnpus:
        require_answer(header or total_printed, text, "npu-smi info -t info-vnpu", "header with 'Vnpu ID'")
    return vnpus
