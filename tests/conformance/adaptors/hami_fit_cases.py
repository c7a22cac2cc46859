# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAMi: rounding, admission, reading of requests, fit, slots, usage, and the device share calls of its plugin."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.filter.fit_vnpus import fit_vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import chip_of, slots
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import charged
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.hami import plugin_share_calls
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.requests import HARD, admit, parse, rounded

PROSE = {"about", "sources", "origin", "reason_format", "fit_order"}
ENTRY = {"id", "note", "input", "expected", "origin"}
INPUT = {
    "rounding": {"chip", "request_mb", "templates", "allocatable_mb", "capacity_mb"},
    "admission": {"chip", "count", "memory_mb", "core", "mode"},
    "request_parsing": {"count", "memory", "core", "memory_factor"},
    "fit": {"devices", "request", "options"},
    "slots_per_card": {"memory_allocatable_mb", "template_memory_mb", "vDeviceCount"},
    "usage_sum": {"used", "add"},
    "device_share_calls": {"chips", "soft_mode", "failing_call"},
}
EXPECTED = {
    "rounding": {"memory_mb", "template", "error"},
    "admission": {"count", "memory_mb", "template", "core", "error"},
    "request_parsing": {"rejected", "count", "memory_mb", "memory_percent", "core"},
    "fit": {"devices", "reason"},
    "slots_per_card": {"slots"},
    "usage_sum": {"slots", "core", "memory_mb"},
    "device_share_calls": {"calls", "call_count", "error"},
}
NETWORK = ("network_id", "networkId", "networkID", "NetworkID", "network")
"""Names that a group of cards might have in a case."""


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "fields", lambda: known(document, PROSE | set(CHECKS), "the file")
    for name, check in CHECKS.items():
        for entry in document.get(name, []):
            yield f"{entry['id']} {entry.get('note', '')}".strip(), lambda name=name, check=check, entry=entry: run(name, check, entry)


def run(name: str, check: Callable[[dict, dict], None], entry: dict) -> None:
    known(entry, ENTRY, entry["id"])
    known(entry["input"], INPUT[name], entry["id"] + " input")
    known(entry["expected"], EXPECTED[name], entry["id"] + " expected")
    check(entry["input"], entry["expected"])


def known(fields: dict, names: set[str], where: str) -> None:
    unknown = sorted(set(fields) - names)
    assert not unknown, f"unknown fields in {where}: {', '.join(unknown)}"


def rounding(given: dict, expected: dict) -> None:
    chip = chip_of(given["chip"])
    sizes = {"allocatable": given.get("allocatable_mb", chip.allocatable), "capacity": given.get("capacity_mb", chip.capacity)}
    chip = dataclasses.replace(chip, templates=chip.templates if given["templates"] else (), **sizes)
    if expected["error"]:
        with pytest.raises(ValueError) as error:
            rounded(chip, given["request_mb"])
        assert str(error.value) == expected["error"]
    else:
        assert rounded(chip, given["request_mb"]) == (expected["memory_mb"], expected["template"])


def admission(given: dict, expected: dict) -> None:
    arguments = (chip_of(given["chip"]), given["count"], given.get("memory_mb"), given.get("core"), given.get("mode", HARD))
    if "error" in expected:
        with pytest.raises(ValueError) as error:
            admit(*arguments)
        assert str(error.value) == expected["error"]
    else:
        admitted = admit(*arguments)
        assert {key: admitted[key] for key in expected} == expected


def request_parsing(given: dict, expected: dict) -> None:
    arguments = (given["count"], given.get("memory"), given.get("core"), given.get("memory_factor", 1))
    if expected.get("rejected"):
        with pytest.raises(ValueError):
            parse(*arguments)
    else:
        parsed = parse(*arguments)
        wanted = {key: value for key, value in expected.items() if key != "rejected"}
        assert {key: parsed[key] for key in wanted} == wanted


def fit(given: dict, expected: dict) -> None:
    devices = [{"network_id" if key in NETWORK else key: value for key, value in device.items()} for device in given["devices"]]
    result = fit_vnpus(devices, given["request"], given["options"])
    assert {"devices": result["devices"], "reason": result["reason"]} == expected


def slots_per_card(given: dict, expected: dict) -> None:
    assert slots(given["memory_allocatable_mb"], tuple(given["template_memory_mb"]), given.get("vDeviceCount", 0)) == expected["slots"]


def usage_sum(given: dict, expected: dict) -> None:
    assert charged(given["used"], given["add"]["core"], given["add"]["memory_mb"]) == expected


def device_share_calls(given: dict, expected: dict) -> None:
    calls, failed = plugin_share_calls(given["chips"], given["soft_mode"], given.get("failing_call"))
    if "calls" in expected:
        assert calls == expected["calls"]
    if "call_count" in expected:
        assert len(calls) == expected["call_count"]
    assert failed == expected.get("error", False)


CHECKS: dict[str, Callable[[dict, dict], None]] = {
    "rounding": rounding,
    "admission": admission,
    "request_parsing": request_parsing,
    "fit": fit,
    "slots_per_card": slots_per_card,
    "usage_sum": usage_sum,
    "device_share_calls": device_share_calls,
}
