# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of npu-smi and nvidia-smi: what our parsers read is what the captures, samples and plans say of them.

Of recorded runs of npu-smi, every answer is read or classified, and the answers of one product agree with each other.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi, _nvidia_smi
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, normalize

NOT_NEEDED = ("parse_lscpu", "parse_numactl")
NEAREST = (
    ("topo-m", _nvidia_smi.parse_nvidia_topo),
    (".csv", _nvidia_smi.parse_nvidia_csv),
    ("info-t-topo", _npu_smi.parse_topo),
    ("info-t-info-vnpu", _npu_smi.parse_vnpu_info),
    ("info-t-template-info", _npu_smi.parse_template_info),
    ("info-t-board", _npu_smi.parse_board),
    ("device-share", _npu_smi.parse_device_share),
    ("info-t-", _npu_smi.parse_key_values),
    ("info-m", _npu_smi.parse_mapping),
    ("info-l", _npu_smi.parse_list),
    ("info-", _npu_smi.parse_info),
)
"""Words of a capture's name and the parser that would be asked for its command; anything else is tried as key : value text."""
COMMANDS = (
    ("process table", _npu_smi.parse_info, "processes"),
    ("`npu-smi info -m`", _npu_smi.parse_mapping, None),
    ("`npu-smi info -t topo`", _npu_smi.parse_topo, None),
)
"""Words of a sample, the parser of its command and the part that must not be empty."""
PLANS = "vllm_ascend_plans.json"
NOT_OURS = {"lscpu -e=CPU,NODE", "lscpu", "ps -Te", "/proc/interrupts"}
KINDS_OF_STATUSES = {0: {None, "unsupported", "permission"}, 187: {"unavailable"}, 200: {"aborted"}, 203: {"busy"}}
KINDS_OF_STATUSES |= {211: {"unavailable", "invalid"}, 214: {"permission"}, 215: {"invalid"}, 217: {"unsupported"}}
HELP = {("-h",), ("--help",), ("info", "-h"), ("set", "-h")}
NOT_ASKED = ("phyid-remap", "proc-mem", "work-mode", "temp", "device-share-cfg-recover")
SECTIONS = ("memory", "health", "usages", "ecc", "product", "power", "common", "device-share")
PARSERS = {
    "-m": _npu_smi.parse_mapping,
    "-l": _npu_smi.parse_list,
    "topo": _npu_smi.parse_topo,
    "board": _npu_smi.parse_board,
    "device-share": _npu_smi.parse_device_share,
}


def captures(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, entry in document.items():
        if name == "skipped":
            for capture in entry:
                yield f"{capture} (no expected value)", functools.partial(_only_known_errors, folder / capture)
        else:
            yield name, functools.partial(_as_expected, folder / name, entry)


def command_texts(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    plans = {plan["id"]: plan["input"] for plan in json.loads((folder / PLANS).read_text())["cases"]}
    for entry in document["entries"]:
        require_known(entry, "id texts", entry["id"])
        for command, key in entry.get("texts", {}).items():
            yield f"{entry['id']}: {command}", functools.partial(_command_text, command, document["texts"][key], plans[entry["id"]])


def _text(capture: pathlib.Path) -> str:
    return capture.read_bytes().decode("utf-8", "replace")


def _as_expected(capture: pathlib.Path, entry: dict) -> None:
    require_known(entry, "command parser expected fidelity source note partial", capture.name)
    name = entry["parser"]
    if name in NOT_NEEDED:
        pytest.skip("CPUs and NUMA nodes come from sysfs")
    parse = getattr(_npu_smi, name, None) or getattr(_nvidia_smi, name, None)
    assert parse, f"no parser is called {name}"
    parsed, expected = parse(_text(capture)), entry["expected"]
    if name == "parse_key_values":  # more values than the named ones are allowed
        for ours, wanted in zip(parsed, expected, strict=True):
            ours["values"] = {key: value for key, value in ours["values"].items() if key in wanted["values"]}
    if name == "parse_nvidia_csv":  # a key without value and a missing key are the same
        parsed, expected = ([{key: row[key] for key in row if row[key] is not None} for row in rows] for rows in (parsed, expected))
    for key in entry.get("partial", ()):
        assert parsed[key] == expected[key], f"{key} differs"
    assert "partial" in entry or parsed == expected


def _only_known_errors(capture: pathlib.Path) -> None:
    parse = next((parse for words, parse in NEAREST if words in capture.name), _npu_smi.parse_key_values)
    try:
        parse(_text(capture))
    except ValueError as error:
        assert str(error)
    assert set(_npu_smi.classify_error(_text(capture))) == {"error"}


def sample(entry: dict, document: dict) -> None:
    require_known(entry, "id kind source product what text", "the sample")
    if entry["kind"].startswith("log"):
        pytest.skip("a log, not the output of a command")
    if "-t board" in entry["what"]:
        pytest.skip("shortened by its authors: the tool prints a colon before the value")
    for words, parse, part in COMMANDS:
        if words in entry["what"]:
            parsed = parse(entry["text"])
            assert parsed[part] if part else parsed, "nothing was read"
            return
    pytest.skip(f"not a command that the project asks: {entry['what']}")


def _command_text(command: str, text: str, plan: dict) -> None:
    """What our parsers read must be what the plan of the same id was computed from."""
    if command in NOT_OURS:
        pytest.skip("read from sysfs and procfs, not from this command")
    {"npu-smi info -m": _mapping, "npu-smi info": _info, "npu-smi info -t topo": _topo}[command](text, plan)


def _mapping(text: str, plan: dict) -> None:
    # A5 prints no logic id; the plan's is the NPU ID there.
    parsed = [
        [row["card"], row["chip"], row["card"] if row["logic_id"] is None else row["logic_id"]] for row in _npu_smi.parse_mapping(text)
    ]
    assert parsed == plan["npu_map"]


def _info(text: str, plan: dict) -> None:
    parsed = {(row["card"], row["chip"] or 0) for row in _npu_smi.parse_info(text)["processes"]}
    assert parsed == {tuple(process) for process in plan["processes"]}


def _topo(text: str, plan: dict) -> None:
    rows = _npu_smi.parse_topo(text)
    if "raw_topo" in plan:  # the text itself is the input
        assert rows == _npu_smi.parse_topo(plan["raw_topo"])
        assert {row["affinity"] is not None for row in rows} == {"CPU Affinity" in text}
    else:
        parsed = {row["id"]: set(expand(row["affinity"])) for row in rows if row["affinity"] is not None}
        assert parsed == {int(label): set(expand(cpus)) for label, cpus in plan["npu_affinity"].items()}


def answers(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    recorded = {}
    for name, entry in document.items():
        if entry["argv"]:
            recorded.setdefault((entry["product"], *entry["argv"]), _text(folder / name))
    for name, entry in document.items():
        yield name, functools.partial(_recorded, entry, _text(folder / name), recorded)


def _recorded(entry: dict, text: str, recorded: dict) -> None:
    require_known(entry, "argv product rc stdin user note", "the run")
    if entry["argv"] is None:
        pytest.skip("a file of the driver, not an answer")
    argv = entry["argv"]
    if tuple(argv) in HELP and entry["rc"] == 0:
        pytest.skip("help text")
    kind = _npu_smi.classify_error(text, entry["rc"])["error"]
    allowed = KINDS_OF_STATUSES.get(entry["rc"], set(_npu_smi.NEXT_STEP))
    assert kind in allowed, f"status {entry['rc']} was taken for {kind}"
    if argv[:1] == ["info"] and (kind is None or entry["rc"] == 211):
        known: dict[int, dict] = {}
        for row in _mapping_of(entry, recorded):
            known.setdefault(row["card"], {})[row["chip"]] = row
        _answer(argv, text, known)
    elif argv[:1] == ["info"]:
        with pytest.raises(_npu_smi.NpuSmiError) as raised:
            _parse(argv)(text)
        assert raised.value.kind == kind


def _mapping_of(entry: dict, recorded: dict) -> list[dict]:
    """Return the mapping of the same product; a state of a product without one of its own has the healthy product's."""
    for product in (entry["product"], entry["product"].rpartition("-")[0]):
        text = recorded.get((product, "info", "-m"))
        if text:
            return _npu_smi.parse_mapping(text)
    return []


def _option(argv: list[str], name: str) -> int | None:
    return int(argv[argv.index(name) + 1]) if name in argv else None


def _parse(argv: list[str]) -> Callable:
    if argv == ["info"]:
        return _npu_smi.parse_info
    return PARSERS.get(argv[2] if argv[1] == "-t" and len(argv) > 2 else argv[1], _npu_smi.parse_key_values)


def _answer(argv: list[str], text: str, known: dict) -> None:
    if len(argv) > 2 and argv[2] in NOT_ASKED:
        pytest.skip("the project does not ask this")
    parsed = _parse(argv)(text)
    if argv == ["info"]:
        _agrees_with_mapping(parsed, known)
    elif argv[1] == "-m":
        assert parsed == [row for chips in known.values() for row in chips.values()]
    elif argv[1] == "-l":
        assert parsed["total"] == len(parsed["cards"])
        assert {row["card"]: row["chips"] for row in parsed["cards"]} == {card: len(chips) for card, chips in known.items()}
    elif argv[2] == "topo":
        _is_a_matrix(parsed, known)
    elif argv[2] == "board":
        _is_the_board(parsed, argv, known)
    else:
        _covers_the_card(parsed, argv, known)
        assert argv[2] in SECTIONS, f"unknown query {argv[2]}"


def _agrees_with_mapping(info: dict, known: dict) -> None:
    shown = {card: {row["chip"]: row for row in info["chips"] if row["card"] == card} for card in {row["card"] for row in info["chips"]}}
    assert {card: set(chips) for card, chips in shown.items()} == {card: set(chips) for card, chips in known.items()}
    for row in info["chips"]:
        listed = known[row["card"]][row["chip"]]
        assert row["name"] in listed["name"]
        assert row["phy_id"] == listed["phy_id"]
        assert row["logic_id"] in (None, listed["logic_id"])
        assert 0 <= row["memory_used_mib"] <= row["memory_total_mib"]
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", row["pci"])
    assert info["version"]
    assert all(process["chip"] in known[process["card"]] for process in info["processes"])


def _is_a_matrix(rows: list[dict], known: dict) -> None:
    labels = [row["label"] for row in rows]
    for row in rows:
        assert list(row["links"]) == labels
        assert row["links"][row["label"]] == "X"
        assert row["affinity"] is None or row["affinity"] == normalize(row["affinity"])
    physical = {chip["phy_id"] for chips in known.values() for chip in chips.values()}
    assert not known or {row["id"] for row in rows} in (set(known), physical)


def _is_the_board(board: dict, argv: list[str], known: dict) -> None:
    assert (board["card"], board["chip"]) == (_option(argv, "-i"), _option(argv, "-c"))
    assert board["firmware_version"]
    controller = known and board["chip"] is not None and board["chip"] not in known[board["card"]]
    assert (board["pci"] is None) == bool(controller)


def _covers_the_card(sections: list[dict], argv: list[str], known: dict) -> None:
    card, chip = _option(argv, "-i"), _option(argv, "-c")
    if chip is not None:
        assert [(row["card"], row["chip"]) for row in sections] == [(None, None)]
    elif argv[2] not in ("ecc", "power"):  # printed for some chips only
        assert not known or [(row["card"], row["chip"]) for row in sections] == [(card, chip) for chip in known[card]]
    for row in sections:
        assert row.get("enabled", True) in (True, False)
        assert row.get("values", True)
