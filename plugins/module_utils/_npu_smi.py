# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the output of npu-smi: one function per command, text in, plain data out.

Every function raises :class:`NpuSmiError` when the text is an error of the tool, and ValueError when nobody can tell
what it is; a table of which a part can be read yields that part. A value that was not printed, ``NA``, ``N/A``, ``-``
and empty are None. PCI addresses and cpulists come out in the kernel's form, memory in MiB.

Forms of the output: hicann/driver ``src/custom/dev_prod/user/npucli`` and the npu-smi references of the products.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ._smi.errors import NEXT_STEP, NpuSmiError, classify_error, find_error, require_answer
from ._smi.tables import parse_info, parse_template_info, parse_vnpu_cores, parse_vnpu_info
from ._smi.text import cpulist_of, lines_of, number_of, pci_of, value_of

if TYPE_CHECKING:
    from typing import Dict, TypedDict

    MappingRow = TypedDict("MappingRow", {"card": int, "chip": int, "logic_id": int | None, "phy_id": int | None, "name": str | None})
    TopoRow = TypedDict("TopoRow", {"label": str, "id": int, "affinity": str | None, "links": Dict[str, str]})
    ChipShare = TypedDict("ChipShare", {"card": int | None, "chip": int | None, "enabled": bool | None})

__all__ = ["NEXT_STEP", "NpuSmiError", "classify_error", "find_error"]
__all__ += ["parse_info", "parse_template_info", "parse_vnpu_cores", "parse_vnpu_info"]

CONTROLLERS = ("mcu", "3559")
"""Names, in lower case, of parts of a card that are listed like chips but are no NPU."""

_MAPPING_TITLE = re.compile(r"\S.*?(?:\bID|Name)(?!\S)")
_DEVICE_LABEL = re.compile(r"(?:NPU|Phy-ID)([0-9]{1,9})\Z")
_COLUMN_LABEL = re.compile(r"(?:NPU|Phy-ID|NIC)[0-9]+\Z")
_KEY = re.compile(r"[A-Za-z][\w ()%/.-]*\Z")
_VNPU_RECOVER = re.compile(r"vnpu config recover mode\s*:\s*(enable|disable)\b", re.IGNORECASE)
_VNPU_MODE = re.compile(r"vnpu-mode\s*:\s*(docker|vm)\b", re.IGNORECASE)
_REMAP_KEYS = {"npu id": "card", "chip id": "chip", "chip logic id": "logic_id", "chip physical id": "phy_id", "chip phy-id": "phy_id"}
_BOARD_KEYS = {
    "npu id": ("card", number_of),
    "chip id": ("chip", number_of),
    "pcie bus info": ("pci", pci_of),
    "chip name": ("chip_name", value_of),
    "software version": ("software_version", value_of),
    "firmware version": ("firmware_version", value_of),
}


def parse_mapping(text: str) -> list[MappingRow]:
    """Return the chips of ``info -m``.

    Rows without an id are not usable NPUs: controllers, and chips that are dead or held by a container. A5 prints
    physical ids only, older products logic ids only.
    """
    titles = None
    chips: list[MappingRow] = []
    for line in lines_of(text):
        if "NPU ID" in line and "Chip ID" in line:
            titles = [" ".join(title.split()).lower() for title in _MAPPING_TITLE.findall(line)]
            identity = "chip logic id" if "chip logic id" in titles else "chip phy-id"
            continue
        if not titles:
            continue
        row = dict(zip(titles, line.split(None, len(titles) - 1)))
        numbers = {title: number_of(row.get(title, "")) for title in titles}
        name = value_of(" ".join(row.get("chip name", "").split()))
        card, chip, logic_id, phy_id = map(numbers.get, ("npu id", "chip id", "chip logic id", "chip phy-id"))
        if card is None or chip is None or (name or "").lower() in CONTROLLERS or (identity in titles and numbers[identity] is None):
            continue
        chips.append({"card": card, "chip": chip, "logic_id": logic_id, "phy_id": phy_id, "name": name})
    if not chips:
        require_answer(titles, text, "npu-smi info -m", "header with 'NPU ID' and 'Chip ID'")
    return chips


def parse_topo(text: str) -> list[TopoRow]:
    """Return the devices of ``info -t topo``.

    ``id`` is the number in the label: a card for ``NPU3``, a physical id for ``Phy-ID12``. ``affinity`` is a cpulist,
    None where the product prints none; the tool prints node 0's CPUs for a device whose node the kernel does not know.
    ``links`` maps the label of every device column to the link; it is empty where columns cannot be told.
    """
    columns = None
    devices = []
    for line in lines_of(text):
        words = line.split()
        label = _DEVICE_LABEL.match(words[0]) if words else None
        if not label:
            continue
        if len(words) > 1 and (words[1] == "CPU" or _COLUMN_LABEL.match(words[1])):
            columns = words[: words.index("CPU")] if "CPU" in words else words
        elif len(words) > 1:
            devices.append(_topo_row(words, int(label.group(1)), columns or []))
        elif columns is None:
            columns = words
    if not devices:
        require_answer(columns, text, "npu-smi info -t topo", "row that begins with NPU<n> or Phy-ID<n>")
    return devices


def _topo_row(words: list[str], number: int, columns: list[str]) -> TopoRow:
    # Links are words, a cpulist begins with a digit: the header's position says nothing about either.
    cells = words[1:]
    end = next((index for index, cell in enumerate(cells) if cell[0] in "0123456789"), len(cells))
    links = {column: link for column, link in zip(columns, cells[:end]) if _DEVICE_LABEL.match(column)}
    if end < len(columns) and links.get(words[0]) != "X":
        links = {}
    return {"label": words[0], "id": number, "affinity": cpulist_of(" ".join(cells[end:])), "links": links}


def parse_board(text: str) -> dict[str, Any]:
    """Return ``info -t board``: ``{card, chip, pci, chip_name, software_version, firmware_version}``.

    The answer for a card names neither chip nor (before A5) chip name; the one for a chip no software version. Where
    an older tool answers for all cards, the first counts.
    """
    board: dict[str, Any] = {name: None for name, _read in _BOARD_KEYS.values()}
    seen = set()
    for key, value in _key_values(text, "npu-smi info -t board"):
        if key.lower() in seen:
            break
        if key.lower() in _BOARD_KEYS:
            seen.add(key.lower())
            name, read = _BOARD_KEYS[key.lower()]
            board[name] = read(value)
    if not seen:
        require_answer(False, text, "npu-smi info -t board", "line such as 'NPU ID : 0'")
    return board


def parse_phyid_remap(text: str) -> dict[str, int | None]:
    """Return ``info -t phyid-remap``: ``{card, chip, logic_id, phy_id}``. A5 has no logic id."""
    ids: dict[str, int | None] = dict.fromkeys(_REMAP_KEYS.values())
    for key, value in _key_values(text, "npu-smi info -t phyid-remap"):
        if key.lower() in _REMAP_KEYS:
            ids[_REMAP_KEYS[key.lower()]] = number_of(value)
    if ids["card"] is None:
        require_answer(False, text, "npu-smi info -t phyid-remap", "line such as 'NPU ID : 0'")
    return ids


def parse_list(text: str) -> dict[str, Any]:
    """Return ``info -l``: ``{total, cards: [{card, chips}]}``. ``total`` counts cards; a dead card (``-1``) is left out."""
    total = None
    cards = []
    for key, value in _key_values(text, "npu-smi info -l"):
        if key.lower() in ("total count", "card count"):
            total = number_of(value)
        elif key.lower() == "npu id":
            cards.append({"card": number_of(value), "chips": None})
        elif key.lower() == "chip count" and cards:
            cards[-1]["chips"] = number_of(value)
    if total is None and not cards:
        require_answer(False, text, "npu-smi info -l", "line such as 'Total Count : 8'")
    return {"total": total, "cards": [card for card in cards if card["card"] is not None]}


def parse_device_share(text: str) -> list[ChipShare]:
    """Return ``info -t device-share``; card and chip are None where both were asked for."""
    states: list[ChipShare] = [
        {"card": card, "chip": chip, "enabled": {"true": True, "false": False}.get(value.lower())}
        for card, chip, values in _sections(text, "npu-smi info -t device-share")
        for key, value in values.items()
        if key.lower() == "device-share status"
    ]
    if not states:
        require_answer(False, text, "npu-smi info -t device-share", "line such as 'Device-share Status : True'")
    return states


def parse_vnpu_recover(text: str) -> str:
    """Return ``enable`` where the driver restores hard vNPUs after a reboot, else ``disable`` (``info -t vnpu-cfg-recover``)."""
    return _word(_VNPU_RECOVER, text, "npu-smi info -t vnpu-cfg-recover", "line 'VNPU config recover mode : ...'")


def parse_vnpu_mode(text: str) -> str:
    """Return for what hard vNPUs are, ``docker`` or ``vm`` (``info -t vnpu-mode``)."""
    return _word(_VNPU_MODE, text, "npu-smi info -t vnpu-mode", "line 'vnpu-mode : ...'")


def _word(pattern: re.Pattern[str], text: str, command: str, wanted: str) -> str:
    matches = [match for match in map(pattern.search, lines_of(text)) if match]
    if not matches:
        require_answer(False, text, command, wanted)
    return matches[0].group(1).lower()


def parse_key_values(text: str) -> list[dict[str, Any]]:
    """Return ``info -t memory`` or ``-t health``: ``[{card, chip, values}]``, values as printed, controllers left out."""
    return [{"card": card, "chip": chip, "values": values} for card, chip, values in _sections(text, "npu-smi info -t")]


def _sections(text: str, command: str) -> list[tuple[int | None, int | None, dict[str, str]]]:
    """Return ``[(card, chip, {key: value})]`` of an output that lists its chips one after the other.

    ``Chip ID`` ends a chip's section for most types and begins it for some (``common``, and all on 310): the first line
    after the card tells. A card without any ``Chip ID`` (A5) and an answer for one chip are one section.
    """
    cards: list[tuple[int | None, list[tuple[str, str]]]] = [(None, [])]
    for key, value in _key_values(text, command):
        if key.lower() == "npu id":
            cards.append((number_of(value), []))
        elif key.lower() != "chip count":
            cards[-1][1].append((key, value))
    if len(cards) > 1:
        cards.pop(0)
    return [(card, chip, values) for card, pairs in cards for chip, values in _chips_of_card(pairs)]


def _chips_of_card(pairs: list[tuple[str, str]]) -> list[tuple[int | None, dict[str, str]]]:
    sections = []
    values = {}
    begins = bool(pairs) and _section_mark(*pairs[0]) is not None
    for key, value in pairs:
        mark = _section_mark(key, value)
        if mark is None:
            values[key] = value
        elif begins:
            values = {}
            sections.append((mark, values))
        else:
            sections.append((mark, values))
            values = {}
    if pairs and not sections:
        return [(None, values)]
    return [(number_of(mark), values) for mark, values in sections if mark not in CONTROLLERS]


def _section_mark(key: str, value: str) -> str | None:
    """Return the printed chip id or the controller's name when a line marks a section, else None."""
    if key.lower() == "chip id" or (key.lower() == "chip name" and value.lower() in CONTROLLERS):
        return value.lower()
    return None


def _key_values(text: str, command: str) -> list[tuple[str, str]]:
    """Return the ``key : value`` lines in order; the value may hold colons, the key may not.

    The tool puts a blank before the colon; loggers and help texts do not. Pasted text without that blank counts when
    there is no line with it, and no error.
    """
    lines = [line.partition(":") for line in lines_of(text) if ":" in line]
    pairs = [(key, value.strip()) for key, _colon, value in lines if _KEY.match(key.strip())]
    spaced = [pair for pair in pairs if pair[0][-1].isspace()]
    if not spaced:
        require_answer(pairs, text, command, "line such as 'NPU ID : 0'")
    return [(" ".join(key.split()), value) for key, value in spaced or pairs]
