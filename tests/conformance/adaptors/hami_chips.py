# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAMi's table of chips and templates."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import Template, chip_of, slots

PROSE = {"about", "sources", "notes"}
CHIP = {
    "chip_name": "name",
    "common_word": "word",
    "resource": "resource",
    "resource_memory": "memory_resource",
    "resource_core": "core_resource",
    "memory_allocatable_mb": "allocatable",
    "memory_capacity_mb": "capacity",
    "memory_factor": "memory_factor",
    "ai_core": "ai_core",
    "ai_cpu": "ai_cpu",
    "super_pod": "pairs",
    "soft_core_resource_in_plugin_configmap": "core_in_plugin",
}
"""The fields of an entry and our names of them."""
TEMPLATE = {"name", "memory_mb", "ai_core", "ai_cpu", "max_per_chip_by_memory"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "fields", lambda: known(document, PROSE | {"chips", "mindcluster_template_names"}, "the file")
    for entry in document["chips"]:
        yield entry["chip_name"], lambda entry=entry: chip(entry)
    if "mindcluster_template_names" in document:
        yield "mindcluster_template_names", lambda: pytest.skip("the names come from the driver: npu-smi info -t template-info")


def known(fields: dict, names: set[str], where: str) -> None:
    assert set(fields) <= names, f"unknown fields in {where}: {sorted(set(fields) - names)}"


def chip(entry: dict) -> None:
    known(entry, set(CHIP) | {"templates", "allocation_unit"}, entry["chip_name"])
    ours = chip_of(entry["chip_name"])
    assert {field: getattr(ours, name) for field, name in CHIP.items() if field in entry} == {
        field: entry[field] for field in CHIP if field in entry
    }
    assert ours.pairs == (entry.get("allocation_unit", 1) == 2)
    assert len(ours.templates) == len(entry["templates"])
    for own, template in zip(ours.templates, entry["templates"], strict=True):
        known(template, TEMPLATE, template["name"])
        assert own == Template(template["name"], template["memory_mb"], template["ai_core"], template["ai_cpu"])
        assert slots(ours.allocatable, (own.memory,)) == template["max_per_chip_by_memory"]
