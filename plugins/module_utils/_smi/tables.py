# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The framed tables of npu-smi: ``info``, ``info -t template-info`` and ``info -t info-vnpu``.

Widths, frames and columns differ by product and release, and pasted text loses blanks and frame lines. So only the
``|`` and the words of that table's own header decide what a cell means; whatever is not a row is passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Mapping, NamedTuple, Sequence, cast

from .errors import require_answer
from .text import lines_of, number_of, pci_of, value_of

if TYPE_CHECKING:
    from typing import List, TypedDict

    _UpperRow = TypedDict("_UpperRow", {"card": int, "name": str | None, "health": str | None})

    class _LowerRow(TypedDict):
        chip: int | None
        phy_id: int | None
        logic_id: int | None
        pci: str | None
        memory_used_mib: int | None
        memory_total_mib: int | None

    class InfoChip(_UpperRow, _LowerRow):
        """The memory is the HBM if the table has that column."""

    InfoProcess = TypedDict("InfoProcess", {"card": int, "chip": int | None, "pid": int, "name": str, "memory_mib": int | None})
    Info = TypedDict("Info", {"version": str | None, "chips": List[InfoChip], "processes": List[InfoProcess]})
    Template = TypedDict("Template", {"name": str, "aicore": int, "memory_gib": int | None, "aicpu": int | None})

    class Vnpu(TypedDict):
        vnpu_id: int
        vgroup_id: int | None
        container_id: str | None
        status: int | None
        template: str | None


_FRAME_CHARACTERS = frozenset("|+-= ")
_VERSION = re.compile(r"Version:\s*([^\s|]+)", re.IGNORECASE)
_TOOL_VERSION = re.compile(r"npu-smi\s+([^\s|]+)", re.IGNORECASE)
_COLUMN = re.compile(r"\S+\([^)]*\)")
_FIELD = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_USAGE = re.compile(r"([0-9]{1,18})\s*/\s*([0-9]{1,18})\Z")


def parse_info(text: str) -> Info:
    """Return what ``npu-smi info`` shows; a process has no chip where its table names only NPUs.

    Raises NpuSmiError for an error text, ValueError when there is no table at all.
    """
    info, _damaged, readable = _info(text)
    if not info["chips"] and not info["processes"]:
        require_answer(readable, text, "npu-smi info", "header with 'Health' or 'Process id'")
    return info


def damaged_rows(text: str) -> list[str]:
    """Return the rows of what ``npu-smi info`` shows that are cut short, or whose other line or heading is missing. What they are about is
    not, or not wholly, in :func:`parse_info`."""
    return list(dict.fromkeys(_info(text)[1]))


def _info(text: str) -> tuple[Info, list[str], bool]:
    """Return what the text shows, its damaged rows, and whether it has a heading."""
    info: Info = {"version": None, "chips": [], "processes": []}
    damaged: list[str] = []
    chips: _ChipLayout | None = None
    processes: _ProcessLayout | None = None
    above: _UpperRow | None = None
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
            info["version"] = banner.group(1) if banner else None
        elif "process id" in words:
            processes, is_closed = _process_layout(words), _closed(line)
        elif "health" in words:
            damaged += [pending] if above else []
            chips, processes, above, is_closed = _chip_layout(words), None, None, _closed(line)
        elif processes:
            info["processes"] += _processes_of_row(cells, processes)
            damaged += [line.strip()] if len(cells) <= processes.pid and _begins_with_number(cells) else []
        elif chips and "bus-id" in words:
            chips = _with_lower_line(chips, words)
        elif not chips or len(cells) <= max(chips.card, chips.name, chips.health, chips.bus, chips.chip or 0):
            damaged += [line.strip()] if above or _begins_with_number(cells) else []
            above = None
        elif not _is_lower_row(cells, chips, above):
            damaged += [pending] if above else []
            above, pending = _upper_row(cells, chips), line.strip()
        elif not chips.columns:
            damaged.append(line.strip())
            above = None
        elif above:
            info["chips"].append({**above, **_lower_row(cells, chips)})
            above = None
    return info, damaged + ([pending] if above else []), bool(chips or processes)


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


def _cell_with(word: str, words: Sequence[str]) -> int | None:
    """Return the index of the first header cell that has a word, or None."""
    return next((index for index, cell in enumerate(words) if word in cell.split()), None)


class _ChipLayout(NamedTuple):
    """Which cell holds what: NPU and name share a cell or do not. The last four are known from the lower header line on."""

    card: int
    name: int
    health: int
    bus: int
    chip: int | None = None
    ids: Sequence[str] = ()
    usage: int = -1
    columns: Sequence[str] = ()


def _chip_layout(words: list[str]) -> _ChipLayout:
    card, health = _cell_with("npu", words) or 0, words.index("health")
    return _ChipLayout(card, _cell_with("name", words) or card, health, bus=health)


def _with_lower_line(layout: _ChipLayout, words: list[str]) -> _ChipLayout:
    chip = _cell_with("chip", words)
    ids = [] if chip is None else [word for word in words[chip].split() if word != "id"]
    usage = next((index for index, cell in enumerate(words) if "usage" in cell), -1)
    return layout._replace(bus=words.index("bus-id"), chip=chip, ids=ids, usage=usage, columns=_COLUMN.findall(words[usage]))


def _is_lower_row(cells: list[str], layout: _ChipLayout, above: _UpperRow | None) -> bool:
    """Whether a row is a chip's second line: it has a bus id, or the sign for none right below a first line."""
    if layout.name != layout.card:
        return not cells[layout.card]
    bus = cells[layout.bus]
    return pci_of(bus) is not None or (above is not None and value_of(bus) is None)


def _upper_row(cells: list[str], layout: _ChipLayout) -> _UpperRow | None:
    number, _blank, name = cells[layout.card].partition(" ")
    card = number_of(number)
    if layout.name != layout.card:
        name = cells[layout.name]
    return None if card is None else {"card": card, "name": value_of(" ".join(name.split())), "health": value_of(cells[layout.health])}


def _lower_row(cells: list[str], layout: _ChipLayout) -> _LowerRow:
    ids = {} if layout.chip is None else dict(zip(layout.ids, cells[layout.chip].split()))
    fields = _FIELD.findall(cells[layout.usage]) if layout.usage < len(cells) else []
    usage = _USAGE.match(fields[-1]) if fields and len(fields) >= len(layout.columns) else None
    return {
        "chip": number_of(ids.get("chip", "0")),
        "phy_id": number_of(ids.get("phy-id", "")),
        "logic_id": number_of(ids.get("device", "")),
        "pci": pci_of(cells[layout.bus]),
        "memory_used_mib": int(usage.group(1)) if usage else None,
        "memory_total_mib": int(usage.group(2)) if usage else None,
    }


class _ProcessLayout(NamedTuple):
    card: int
    with_chip: bool
    pid: int
    name: int | None
    memory: int | None


def _process_layout(words: list[str]) -> _ProcessLayout:
    card = _cell_with("npu", words) or 0
    with_chip = "chip" in words[card].split()
    return _ProcessLayout(card, with_chip, words.index("process id"), _cell_with("name", words), _cell_with("memory(mb)", words))


def _processes_of_row(cells: list[str], layout: _ProcessLayout) -> list[InfoProcess]:
    """Return the process of a row as a list; none for ``No running processes found in NPU 0`` and damaged rows."""
    printed: Mapping[int | None, str] = dict(enumerate(cells))
    ids = [number_of(word) for word in printed.get(layout.card, "").split()]
    pid = number_of(printed.get(layout.pid, ""))
    if not ids or ids[0] is None or pid is None:
        return []
    chip = ids[1] if layout.with_chip and len(ids) > 1 else None
    name, memory = printed.get(layout.name, ""), number_of(printed.get(layout.memory, ""))
    return [{"card": ids[0], "chip": chip, "pid": pid, "name": name, "memory_mib": memory}]


def parse_template_info(text: str) -> list[Template]:
    """Return the vNPU templates of ``info -t template-info``.

    A template takes two rows; the lower one begins with a number and has no column that is returned.
    """
    header = None
    templates: list[Template] = []
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


def parse_vnpu_info(text: str) -> list[Vnpu]:
    """Return the vNPUs of ``info -t info-vnpu``. Newer releases leave out the list's header when there are none."""
    header = None
    total_printed = False
    vnpus: list[Vnpu] = []
    for line in lines_of(text):
        cells = _cells(line)
        titles = [cell.lower() for cell in cells]
        if "vnpu id" in titles:
            header = titles
        elif header:
            row = dict(zip(header, cells))
            number, group, status = (number_of(row.get(name, "")) for name in ("vnpu id", "vgroup id", "status"))
            container, template = (value_of(row.get(name, "")) for name in ("container id", "template name"))
            if number is not None:
                values = {"vnpu_id": number, "vgroup_id": group, "container_id": container, "status": status, "template": template}
                vnpus.append(cast("Vnpu", values))
        elif cells and titles[0].startswith("total number of vnpu"):
            total_printed = True
    if not vnpus:
        require_answer(header or total_printed, text, "npu-smi info -t info-vnpu", "header with 'Vnpu ID'")
    return vnpus
