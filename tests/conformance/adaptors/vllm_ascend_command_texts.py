# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command texts of vLLM-Ascend plans: what our parsers read must be what the plan of the same id was computed from."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import parse_info, parse_mapping, parse_topo

FIELDS = {"id", "texts"}
PLANS = "vllm_ascend_plans.json"
NOT_OURS = {"lscpu -e=CPU,NODE", "lscpu", "ps -Te", "/proc/interrupts"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    plans = {plan["id"]: plan["input"] for plan in json.loads((folder / PLANS).read_text())["cases"]}
    checks = {"npu-smi info -m": _mapping, "npu-smi info": _info, "npu-smi info -t topo": _topo}
    for entry in document["entries"]:
        for command, key in entry.get("texts", {}).items():
            yield (
                f"{entry['id']}: {command}",
                functools.partial(_check, entry, command, checks.get(command), document["texts"][key], plans[entry["id"]]),
            )


def _check(entry: dict, command: str, check: Callable | None, text: str, plan: dict) -> None:
    assert set(entry) <= FIELDS, f"unknown fields {sorted(set(entry) - FIELDS)}"
    if command in NOT_OURS:
        pytest.skip("read from sysfs and procfs, not from this command")
    assert check, f"unknown command {command}"
    check(text, plan)


def _mapping(text: str, plan: dict) -> None:
    # A5 prints no logic id; the plan's is the NPU ID there.
    parsed = [[row["card"], row["chip"], row["card"] if row["logic_id"] is None else row["logic_id"]] for row in parse_mapping(text)]
    assert parsed == plan["npu_map"]


def _info(text: str, plan: dict) -> None:
    parsed = {(row["card"], row["chip"] or 0) for row in parse_info(text)["processes"]}
    assert parsed == {tuple(process) for process in plan["processes"]}


def _topo(text: str, plan: dict) -> None:
    rows = parse_topo(text)
    if "raw_topo" in plan:  # the text itself is the input
        assert rows == parse_topo(plan["raw_topo"])
        assert {row["affinity"] is not None for row in rows} == {"CPU Affinity" in text}
    else:
        parsed = {row["id"]: set(expand(row["affinity"])) for row in rows if row["affinity"] is not None}
        assert parsed == {int(label): set(expand(cpus)) for label, cpus in plan["npu_affinity"].items()}
