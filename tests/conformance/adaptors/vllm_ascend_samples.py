# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Literal texts around vLLM-Ascend's binder: those of our commands must be readable; they carry no expected values."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _npu_smi

FIELDS = {"id", "kind", "source", "product", "what", "text"}
COMMANDS = (
    ("process table", _npu_smi.parse_info, "processes"),
    ("`npu-smi info -m`", _npu_smi.parse_mapping, None),
    ("`npu-smi info -t topo`", _npu_smi.parse_topo, None),
)


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for sample in document["samples"]:
        yield sample["id"], functools.partial(_check, sample)


def _check(sample: dict) -> None:
    assert set(sample) <= FIELDS, f"unknown fields {sorted(set(sample) - FIELDS)}"
    if sample["kind"].startswith("log"):
        pytest.skip("a log, not the output of a command")
    if "-t board" in sample["what"]:
        pytest.skip("shortened by its authors: the tool prints a colon before the value")
    for words, parse, part in COMMANDS:
        if words in sample["what"]:
            parsed = parse(sample["text"])
            assert parsed[part] if part else parsed, "nothing was read"
            return
    pytest.skip(f"not a command that the project asks: {sample['what']}")
