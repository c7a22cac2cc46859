# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of npu-smi and nvidia-smi: what our parsers read is what the captures, samples and plans say of them."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi, _nvidia_smi
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand

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
COMMANDS = (
    ("process table", _npu_smi.parse_info, "processes"),
    ("`npu-smi info -m`", _npu_smi.parse_mapping, None),
    ("`npu-smi info -t topo`", _npu_smi.parse_topo, None),
)
"""Words of a sample, the parser of its command and the part that must not be empty."""
PLANS = "vllm_ascend_plans.json"
NOT_OURS = {"lscpu -e=CPU,NODE", "lscpu", "ps -Te", "/proc/interrupts"}


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
