# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAMi's chips, requests and fits, and the device share: answers and the least list of calls."""

from __future__ import annotations

import dataclasses

import pytest
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.filter.fit_vnpus import fit_vnpus
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import calls_for, refusal
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import NpuSmiError, parse_device_share
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import Template, chip_of, rounded, slots
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.hami import share_calls as calls_of_plugin

CHIP = {"chip_name": "name", "common_word": "word", "super_pod": "pairs", "ai_core": "ai_core", "ai_cpu": "ai_cpu"}
CHIP |= {"memory_allocatable_mb": "allocatable", "memory_capacity_mb": "capacity", "memory_factor": "memory_factor"}
CHIP |= {"resource": "resource", "resource_memory": "memory_resource", "resource_core": "core_resource"}
CHIP |= {"soft_core_resource_in_plugin_configmap": "core_in_plugin"}
"""The fields of an entry and our names of them."""
NOT_SWITCHED = "the boot unit sets device share again; the collection does not switch the driver's own recovery"
TEMPLATE = "name memory_mb ai_core ai_cpu max_per_chip_by_memory"
NETWORK = ("network_id", "networkId", "networkID", "NetworkID", "network")
"""Names that a group of cards might have in a case."""
KINDS = {"busy": "busy occupied in_container upgrading", "unavailable": "inner_error timeout no_device not_ready file"}
KINDS |= {"aborted": "aborted", "invalid": "invalid_parameter", "permission": "not_permitted", "unsupported": "not_supported unsupported"}
"""The kinds of our refusals, each with the words of the cases for a failed set command."""


def chip(entry: dict, document: dict) -> None:
    require_known(entry, {*CHIP, "templates", "allocation_unit"}, entry["chip_name"])
    ours = chip_of(entry["chip_name"])
    for field in CHIP.keys() & entry.keys():
        assert (field, getattr(ours, CHIP[field])) == (field, entry[field])
    assert ours.pairs == (entry.get("allocation_unit", 1) == 2)
    assert len(ours.templates) == len(entry["templates"])
    for own, template in zip(ours.templates, entry["templates"], strict=True):
        require_known(template, TEMPLATE, template["name"])
        assert own == Template(template["name"], template["memory_mb"], template["ai_core"], template["ai_cpu"])
        assert slots(ours.allocatable, (own.memory,)) == template["max_per_chip_by_memory"]


def rounding(chip: str, request_mb: int, templates: bool, allocatable_mb: int = 0, capacity_mb: int = 0) -> dict:
    known = chip_of(chip)
    sizes = {"allocatable": allocatable_mb or known.allocatable, "capacity": capacity_mb or known.capacity}
    memory, template = rounded(dataclasses.replace(known, templates=known.templates if templates else (), **sizes), request_mb)
    return {"memory_mb": memory, "template": template}


def fit(devices: list, request: dict, options: dict) -> dict:
    named = [{"network_id" if key in NETWORK else key: value for key, value in device.items()} for device in devices]
    return fit_vnpus(named, request, options)


def share_calls(chips: list, soft_mode: bool, failing_call: int | None = None) -> dict:
    """Return the calls until one fails, which the plugin does not go on from."""
    calls = [call.split()[1:] for call in calls_of_plugin(chips)][:failing_call] if soft_mode else []
    return {"calls": calls, "call_count": len(calls), "error": failing_call is not None and len(calls) == failing_call}


def query(given: dict, expected: dict) -> None:
    if "device-share-cfg-recover" in given["args"]:
        pytest.skip(NOT_SWITCHED)
    options = dict(zip(given["args"], given["args"][1:], strict=False))
    card, chip = (int(options[option]) if option in options else None for option in ("-i", "-c"))
    kind = expected["kind"]
    if kind == "status":
        found: dict = {}
        for row in parse_device_share(given["stdout"]):
            found.setdefault(card if row["card"] is None else row["card"], {})[row["chip"] or chip or 0] = row["enabled"]
        assert found == by_number(expected["cards"])
    else:
        with pytest.raises(NpuSmiError) as error:
            parse_device_share(given["stdout"])
        assert error.value.kind == {"unsupported": "unsupported", "needs_card_id": "invalid"}[kind]


def set_command(given: dict, expected: dict) -> None:
    found = refusal(given["stdout"], given["rc"])
    assert (found is None) == expected["ok"], str(found)
    assert expected["ok"] or expected["why"] in KINDS[found.kind].split(), f"{found.kind}: {found}"


def by_number(cards: dict) -> dict[int, dict[int, bool]]:
    """Return ``{card: {chip: bool}}``; a card with one state for all has one chip."""
    by_chip = {int(card): chips if isinstance(chips, dict) else {"0": chips} for card, chips in cards.items()}
    return {card: {int(chip): bool(state) for chip, state in chips.items()} for card, chips in by_chip.items()}


def changes(current: dict, wanted: dict, persist: dict | None = None, recorded: dict | None = None) -> list:
    if persist or recorded:
        pytest.skip(NOT_SWITCHED)
    current, wanted = by_number(current), by_number(wanted)
    return [words for card in sorted(wanted) for words in calls_for(card, current.get(card, {}), wanted[card], by_chip=False)]
