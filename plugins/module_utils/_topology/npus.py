# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NPUs of a host: what npu-smi lists, joined with what sysfs knows about their PCI functions.

npu-smi is one witness, sysfs the other: NUMA nodes come from sysfs, ids and memory from npu-smi, and where the two disagree, that is
a sentence. What npu-smi prints and how it fails: Ascend npu-smi reference, and vllm-ascend issues 632, 2698 and 16309.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, Tuple

from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.pci import DEVICE_FOLDER, numa_node
from .._base.findings import Device
from .._npu_smi import (
    parse_board,
    parse_device_share,
    parse_info,
    parse_mapping,
    parse_template_info,
    parse_topo,
    parse_vnpu_cores,
    parse_vnpu_recover,
)
from .._smi.tables import damaged_rows
from .._smi.tool import NPU_SMI_FOLDERS, installed_version, HUNG, Tool, find
from .._users.devices import register_npus

if TYPE_CHECKING:
    from typing import List, Literal, TypedDict

    from .._base.documents import Driver, Node, Npu, PciDevice, Splits, Unlisted
    from .._npu_smi import MappingRow, TopoRow
    from .._smi.tables import Info, InfoChip, InfoProcess

    class _Info(Info):
        npu_smi: str | None
        damaged: List[str]

    _Ids = TypedDict("_Ids", {"id": int, "phy_id": int | None, "name": str | None})
    Devices = Mapping[str, PciDevice]

_BANNER = re.compile(r"npu-smi\s+(\S+)\s+Version:")
_DEAD_ROW = re.compile(r"^\s*-1\s", re.MULTILINE)
_NAMES = (
    (re.compile(r"310P"), "310p"),
    (re.compile(r"310|MiniD"), "310"),
    (re.compile(r"950"), "a5"),
    (re.compile(r"910_93|910C"), "a3"),
    (re.compile(r"910B\d"), "a2"),
    (re.compile(r"910(A|B|Pro|Premium)|9010"), "910"),
)

QUERIES = (("info",), ("info", "-m"), ("info", "-t", "topo"))
"""The queries that tell of all NPUs."""
Key = Tuple[int, int]
"""Card and chip."""


def start(host: Host, command: str | None, devices: Devices, problems: list[str]) -> Tool | None:
    """Return npu-smi with its three queries under way, or None when there is none.

    ``command`` is the one to use instead of an npu-smi that is looked for, ``devices`` are the accelerators of the PCI bus
    (:func:`_kernel.pci.accelerators`). What goes wrong is added to ``problems``.
    """
    tool = find(host, command, "npu-smi", NPU_SMI_FOLDERS, problems, list(_ascend(devices)) or host.names("/dev", "davinci[0-9]*"))
    if tool:
        tool.ask_ahead(*QUERIES)
    return tool


def _ascend(devices: Devices) -> dict[str, PciDevice]:
    return {pci: device for pci, device in devices.items() if device["family"] != "gpu"}


def unlisted(devices: Devices, chips: Iterable[Npu]) -> list[Unlisted]:
    """Return the NPUs of the bus that npu-smi does not list, by address."""
    listed = {chip["pci"] for chip in chips}
    return [{**device, "pci": pci} for pci, device in sorted(_ascend(devices).items()) if pci not in listed]


def gather(
    host: Host, tool: Tool | None, devices: Devices, nodes: Sequence[Node], device_share: bool, problems: list[str]
) -> tuple[list[Npu], Driver, dict[int, list[Device]]]:
    """Return the NPUs ascending by logic id, the driver, and the NPUs of each process that npu-smi lists; its table can be cut short.

    ``tool`` is what :func:`start` returned for the same ``devices``, ``nodes`` are the NUMA nodes (:func:`_kernel.cpus.nodes`).
    """
    present = _ascend(devices)
    info, chips = _ask(tool, device_share) if tool else (None, [])
    for chip in chips:
        chip["family"] = present[chip["pci"]]["family"] if chip["pci"] in present else _family(chip)
        chip["numa"] = numa_node(host, chip["pci"]) if chip["pci"] else None
    register_npus(host, chips, tool, problems)
    if tool:
        tool.settle()
        problems.extend(_inconsistencies(host, chips, present, nodes))
    version, npu_smi = (info["version"], info["npu_smi"]) if info else (None, None)
    driver: Driver = {"version": version or installed_version(host), "npu_smi": npu_smi}
    if tool and tool.session:
        driver["path"] = tool.argv[0]
    listed: dict[int, list[Device]] = {}
    for process in info["processes"] if info else ():
        npus = [Device.of(chip) for chip in chips if chip["card"] == process["card"] and process["chip"] in (None, chip["chip"])]
        listed.setdefault(process["pid"], []).extend(npus)
    return sorted(chips, key=lambda chip: chip["id"]), driver, listed


def splits(tool: Tool, npus: Iterable[Npu]) -> Splits:
    """Return into what the driver can split the chips of a host, as far as npu-smi tells."""
    first: dict[str, Npu] = {}
    for npu in npus:
        first.setdefault(npu["name"] or "", npu)
    quiet = ("unsupported", "invalid")
    split: Splits = {"templates": {}, "ai_cores": {}, "recover": None}
    for name, npu in first.items():
        words = ("-i", str(npu["card"]), "-c", str(npu["chip"]))
        rows = tool.ask(parse_template_info, "info", "-t", "template-info", *words, quiet=quiet)
        cores = tool.ask(parse_vnpu_cores, "info", "-t", "info-vnpu", *words, quiet=quiet) if rows else None
        if rows and cores:
            split["templates"][name], split["ai_cores"][name] = rows, cores
    mode = tool.ask(parse_vnpu_recover, "info", "-t", "vnpu-cfg-recover", quiet=quiet) if split["templates"] else None
    return {**split, "recover": None if mode is None else mode == "enable"}


def _ask(tool: Tool, device_share: bool) -> tuple[_Info | None, list[Npu]]:
    """Return ``(info, chips)`` with as few calls as possible: a call takes up to seconds, and longer where an NPU is ill."""
    info = tool.ask(_info, "info")
    tool.problems.extend(info["damaged"] if info else ())
    mapping = _mapping(tool)
    topo = tool.ask(parse_topo, "info", "-t", "topo") or [] if mapping or _shown(info) else []
    ids = _ids_of_mapping(mapping, tool.problems) if mapping else _ids_of_info(info, topo, tool.problems)
    chips = _chips(info, ids)
    unknown = sorted(_shown(info).keys() - ids.keys())
    if mapping and unknown:
        tool.problems.append("npu-smi info lists %s, but 'info -m' has no logic id for it; left out." % _words(unknown))
    if chips:
        _add_boards(tool, chips, alone=all(row["logic_id"] is None for row in mapping) if mapping else False)
        for row in topo:
            for chip in chips:
                if chip[_labelled(row)] == row["id"]:
                    chip["affinity"] = row["affinity"]
    if device_share:
        _add_device_share(tool, chips)
    return info, chips


def _info(text: str) -> _Info:
    match = _BANNER.search(text)
    damage = "A row of npu-smi info is cut short, or lacks its other line or its heading: '%s'."
    damaged = [damage % row for row in damaged_rows(text)]
    return {**parse_info(text), "npu_smi": match.group(1) if match else None, "damaged": damaged}


def _mapping(tool: Tool) -> list[MappingRow] | None:
    """Return the rows of ``info -m``, or None; a row with NPU ID -1 is a sentence."""

    def parse(text: str) -> list[MappingRow]:
        dead = len(_DEAD_ROW.findall(text))
        if dead:
            tool.problems.append("npu-smi info -m lists %d NPU(s) with NPU ID -1: dead, or in use by another program." % dead)
        return parse_mapping(text)

    return tool.ask(parse, "info", "-m")


def _shown(info: _Info | None) -> dict[Key, InfoChip]:
    """Return the rows of the table of ``info``. A product without chip ids has one chip on a card."""
    rows: dict[Key, InfoChip] = {}
    for row in info["chips"] if info else []:
        rows.setdefault((row["card"], row["chip"] or 0), row)
    return rows


def _chips(info: _Info | None, ids: Mapping[Key, _Ids]) -> list[Npu]:
    """Return the chips that have a logic id, with what ``info`` says about them."""
    shown = _shown(info)
    busy = {(process["card"], process["chip"]) for process in info["processes"]} if info else set()
    chips = []
    for (card, chip), listed in sorted(ids.items()):
        row = shown.get((card, chip))
        name, pci, memory_mib = (row["name"], row["pci"], row["memory_total_mib"]) if row else (None, None, None)
        npu = blank("npu", listed["id"], card, name or listed["name"], pci, memory_mib)
        npu["chip"], npu["phy_id"] = chip, row["phy_id"] if row and listed["phy_id"] is None else listed["phy_id"]
        npu["busy"] = bool({(card, chip), (card, None)} & busy) if info else None
        chips.append(npu)
    return chips


def blank(kind: str, number: int, card: int, name: str | None, pci: str | None, memory_mib: int | None) -> Npu:
    """Return an NPU or GPU of which no more is known."""
    return {
        "kind": kind,
        "id": number,
        "card": card,
        "chip": 0,
        "phy_id": None,
        "name": name,
        "family": None,
        "pci": pci,
        "numa": None,
        "affinity": None,
        "memory_mib": memory_mib,
        "device_share": None,
        "busy": None,
        "device": {"number": None, "file": None, "known_by": "unknown"},
        "driver": None,
        "parts": [],
    }


def _ids_of_mapping(rows: Iterable[MappingRow], problems: list[str]) -> dict[Key, _Ids]:
    """Return the ids of chips. Without a column for the logic id (A5) that is the NPU ID."""
    ids: dict[Key, _Ids] = {}
    taken: dict[int, Key] = {}
    for row in rows:
        key = (row["card"], row["chip"] or 0)
        logic_id = row["card"] if row["logic_id"] is None else row["logic_id"]
        if key not in ids and taken.setdefault(logic_id, key) != key:
            problems.append("npu-smi info -m gives logic id %d to %s; the second is left out." % (logic_id, _words([taken[logic_id], key])))
            continue
        name = re.sub(r"^Ascend\s+", "", row["name"] or "") or None
        ids.setdefault(key, {"id": logic_id, "phy_id": row["phy_id"], "name": name})
    return ids


def _ids_of_info(info: _Info | None, topo: Iterable[TopoRow], problems: list[str]) -> dict[Key, _Ids]:
    """Return the same without ``info -m``, where the tables of ``info`` and ``info -t topo`` tell; otherwise none.

    The table of ``info`` leaves no doubt in three cases: its column Device is the logic id (310 families); an A5 NPU's logic id is its
    NPU ID; physical ids that count up from 0 without a gap are the logic ids, because those do the same in the same order. Else
    :func:`_counted`.
    """
    shown = _shown(info)
    rows = list(shown.values())
    if info is None or not rows:
        return {}
    ids: Sequence[int | None]
    if None not in {row["logic_id"] for row in rows} and len({row["logic_id"] for row in rows}) == len(rows):
        ids, source = [row["logic_id"] for row in rows], "the column Device of npu-smi info"
    elif all("950" in (row["name"] or "") for row in rows):
        ids, source = [row["card"] for row in rows], "the NPU ids of npu-smi info"
    elif [row["phy_id"] for row in rows] == list(range(len(rows))):
        ids, source = list(range(len(rows))), "the physical ids of npu-smi info"
    else:
        ids, source = _counted(shown, topo, info["processes"]), "the order of npu-smi info"
    unknown = sorted(key for key, number in zip(shown, ids) if number is None)
    if unknown:
        problems.append("The logic ids of %s are not known without npu-smi info -m; left out." % _words(unknown))
    if len(unknown) < len(rows):
        problems.append("Logic ids were taken from %s, because 'info -m' gave none." % source)
    numbered = zip(shown.items(), ids)
    return {key: {"id": number, "phy_id": row["phy_id"], "name": row["name"]} for (key, row), number in numbered if number is not None}


def _counted(shown: Mapping[Key, InfoChip], topo: Iterable[TopoRow], processes: Iterable[InfoProcess]) -> list[int | None]:
    """Return the positions in the table of ``info`` of the NPUs that have a row in the topology; where that has none, of those that run.

    The others are None, and so is everybody in a table with two chips of one logic id. Order of fallbacks: vLLM-Ascend, "CPU Binding".
    """
    keys = sorted(shown)
    if any(row["logic_id"] is not None for row in shown.values()):
        return [None] * len(keys)
    labels = {(_labelled(row), row["id"]) for row in topo}
    listed = {key for key in keys if {("card", shown[key]["card"]), ("phy_id", shown[key]["phy_id"])} & labels}
    running = {(process["card"], process["chip"]) for process in processes}
    counted = listed or {key for key in keys if {key, (key[0], None)} & running}
    return [keys.index(key) if key in counted else None for key in shown]


def _add_boards(tool: Tool, chips: Iterable[Npu], alone: bool) -> None:
    """Ask for what is still unknown; ``alone`` says that cards have one chip and the product refuses ``-c`` (A5)."""
    for chip in chips:
        if chip["pci"] and chip["name"]:
            continue
        words = ["info", "-t", "board", "-i", str(chip["card"])]
        board = tool.ask(parse_board, *(words if alone else words + ["-c", str(chip["chip"])]))
        if board:
            chip["pci"] = chip["pci"] or board["pci"]
            chip["name"] = chip["name"] or board["chip_name"]
        if tool.failure == HUNG:
            return


def _labelled(row: TopoRow) -> Literal["phy_id", "card"]:
    """Return what the label of a row has: the NPU ID, that is the card, or on A3 the physical id."""
    return "phy_id" if row["label"].startswith("Phy-ID") else "card"


def _add_device_share(tool: Tool, chips: Iterable[Npu]) -> None:
    """Ask for the device share of every card, until npu-smi does not answer in time: a tool that hangs would take a time limit each."""
    cards = sorted({chip["card"] for chip in chips})
    for index, card in enumerate(cards):
        if tool.unanswered:
            remaining = compress(cards[index:])
            tool.problems.append("Device share of card %s was not queried, because npu-smi did not answer before." % remaining)
            return
        answer = tool.ask(parse_device_share, "info", "-t", "device-share", "-i", str(card), quiet=("unsupported",))
        states = {row["chip"] or 0: row["enabled"] for row in answer or []}
        for chip in chips:
            if chip["card"] == card:
                chip["device_share"] = states.get(chip["chip"])


def _family(chip: Npu) -> str | None:
    name = chip["name"] or ""
    if name == "Ascend910" and chip["phy_id"] is not None:
        return "a3"
    return next((family for pattern, family in _NAMES if pattern.search(name)), None)


def _inconsistencies(host: Host, chips: Sequence[Npu], present: Devices, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a sentence for everything in which npu-smi and sysfs do not agree, or which neither of them tells."""
    for (name, family), ids in _grouped(chips, lambda chip: None if _family(chip) else (chip["name"], chip["family"])):
        known_family = "its PCI device id says %s" % family if family else "its PCI device id is unknown, too"
        yield "NPU %s: the chip name '%s' names no known family; %s." % (compress(ids), name, known_family)
    for (pci, family), ids in _grouped(chips, lambda chip: (chip["pci"], chip["family"]) if chip["pci"] else None):
        if len(ids) > 1 and family != "310p":
            yield "NPU %s: all have PCI function %s, so only one of them is a separate device." % (compress(ids), pci)
    listed = {chip["pci"] for chip in chips if chip["pci"]}
    missing = sorted(pci for pci in listed if not host.exists("%s/%s" % (DEVICE_FOLDER, pci)))
    if missing:
        yield "npu-smi lists PCI functions that %s does not have: %s." % (host.path(DEVICE_FOLDER), ", ".join(missing))
    missing_npus = [device["pci"] for device in unlisted(present, chips)]
    if missing_npus:
        words = ("NPU", "is") if len(missing_npus) == 1 else ("NPUs", "are")
        yield "%s at %s %s on the PCI bus and not listed by npu-smi." % (words[0], ", ".join(missing_npus), words[1])
    for sentence, ids in _grouped(chips, lambda chip: None if chip["pci"] in missing else _disagreement(chip, nodes)):
        yield "NPU %s: %s" % (compress(ids), sentence)


def _disagreement(chip: Npu, nodes: Sequence[Node]) -> str | None:
    """Return what is wrong with an NPU's NUMA node. npu-smi prints the CPUs of node 0 where the kernel has no node for the device."""
    if chip["pci"] is None:
        return None
    if chip["numa"] is None:
        printed = "npu-smi prints CPU affinity %s, which is a guess" % chip["affinity"] if chip["affinity"] else "npu-smi prints none"
        return "the kernel has no NUMA node for it (numa_node is -1), and %s." % printed
    local = next((node["cpus"] for node in nodes if node["id"] == chip["numa"]), "")
    online = {cpu for node in nodes for cpu in expand(node["cpus"])}
    if chip["affinity"] is None or set(expand(chip["affinity"])) & online == set(expand(local)):
        return None
    cpus = "whose CPUs are %s" % local if local else "which has no online CPU"
    return "npu-smi prints CPU affinity %s, but sysfs says NUMA node %d, %s." % (chip["affinity"], chip["numa"], cpus)


def _grouped(chips: Iterable[Npu], key: Callable[[Npu], Any]) -> list[tuple[Any, list[int]]]:
    """Return ``[(value, [ids])]`` of the chips for which ``key`` has a value."""
    groups: dict[Any, list[int]] = {}
    for chip in chips:
        value = key(chip)
        if value is not None:
            groups.setdefault(value, []).append(chip["id"])
    return list(groups.items())


def _words(keys: Iterable[Key]) -> str:
    return " and ".join("card %d chip %d" % key for key in keys)
