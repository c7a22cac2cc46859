# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured outputs and the values that they hold: every capture goes through the parser that its entry names."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi, _nvidia_smi

FIELDS = {"command", "parser", "expected", "fidelity", "source", "note", "partial"}
NOT_NEEDED = ("parse_lscpu", "parse_numactl")
NEAREST = (
    ("topo-m", _nvidia_smi.parse_nvidia_topo),
    (".csv", _nvidia_smi.parse_nvidia_csv),
    ("info-t-topo", _npu_smi.parse_topo),
    ("info-t-info-vnpu", _npu_smi.parse_vnpu_info),
    ("info-t-template-info", _npu_smi.parse_template_info),
    ("info-t-board", _npu_smi.parse_board),
    ("device-share", _npu_smi.parse_device_share),
    ("cfg-recover", _npu_smi.parse_recover),
    ("info-t-", _npu_smi.parse_key_values),
    ("info-m", _npu_smi.parse_mapping),
    ("info-l", _npu_smi.parse_list),
    ("info-", _npu_smi.parse_info),
)
"""Words of a capture's name and the parser that would be asked for its command; anything else is tried as key : value text."""


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, entry in document.items():
        if name == "skipped":
            for capture in entry:
                yield f"{capture} (no expected value)", functools.partial(_only_known_errors, folder / capture)
        else:
            yield name, functools.partial(_as_expected, folder / name, entry)


def _text(capture: pathlib.Path) -> str:
    return capture.read_bytes().decode("utf-8", "replace")


def _as_expected(capture: pathlib.Path, entry: dict) -> None:
    assert set(entry) <= FIELDS, f"unknown fields {sorted(set(entry) - FIELDS)}"
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
