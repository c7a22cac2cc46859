# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded npu-smi runs: every answer is read or classified, and the answers of one product agree with each other."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import normalize

KINDS_OF_STATUSES = {
    0: {None, "unsupported", "permission"},
    187: {"unavailable"},
    200: {"aborted"},
    203: {"busy"},
    211: {"unavailable", "invalid"},
    214: {"permission"},
    215: {"invalid"},
    217: {"unsupported"},
}
HELP = {("-h",), ("--help",), ("info", "-h"), ("set", "-h")}
TYPES_OF_SECTIONS = ("memory", "health", "usages", "ecc", "product", "power", "common")


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    recorded = {}
    for name, entry in document.items():
        if entry["argv"]:
            recorded.setdefault((entry["product"], *entry["argv"]), (folder / name).read_bytes().decode("utf-8", "replace"))
    for name, entry in document.items():
        text = (folder / name).read_bytes().decode("utf-8", "replace")
        yield name, functools.partial(_check, entry, text, recorded)


def _check(entry: dict, text: str, recorded: dict) -> None:
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
        known = {row["card"]: {} for row in _mapping(entry, recorded)}
        for row in _mapping(entry, recorded):
            known[row["card"]][row["chip"]] = row
        _answer(argv, text, known)
    elif argv[:1] == ["info"]:
        with pytest.raises(_npu_smi.NpuSmiError) as raised:
            _parse(argv)(text)
        assert raised.value.kind == kind


def _mapping(entry: dict, recorded: dict) -> list[dict]:
    """Return the mapping of the same product; a state of a product without one of its own has the healthy product's."""
    for product in (entry["product"], entry["product"].rpartition("-")[0]):
        text = recorded.get((product, "info", "-m"))
        if text:
            return _npu_smi.parse_mapping(text)
    return []


def _option(argv: list[str], name: str) -> int | None:
    return int(argv[argv.index(name) + 1]) if name in argv else None


def _parse(argv: list[str]) -> Callable:
    parsers = {
        "-m": _npu_smi.parse_mapping,
        "-l": _npu_smi.parse_list,
        "topo": _npu_smi.parse_topo,
        "board": _npu_smi.parse_board,
        "device-share": _npu_smi.parse_device_share,
        "device-share-cfg-recover": _npu_smi.parse_recover,
    }
    if argv == ["info"]:
        return _npu_smi.parse_info
    return parsers.get(argv[2] if argv[1] == "-t" and len(argv) > 2 else argv[1], _npu_smi.parse_key_values)


def _answer(argv: list[str], text: str, known: dict) -> None:
    if len(argv) > 2 and argv[2] in ("phyid-remap", "proc-mem", "work-mode", "temp"):
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
    elif argv[2] == "device-share-cfg-recover":
        assert parsed in (True, False)
    else:
        _covers_the_card(parsed, argv, known)
        assert argv[2] in (*TYPES_OF_SECTIONS, "device-share"), f"unknown query {argv[2]}"


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
