# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device share: answers to queries, answers to set commands, the driver's recovery file, and the least list of calls."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.calls import parse_recovery_file, plan_changes
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.tool import refusal, states
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import NpuSmiError, parse_device_share, parse_recover

TABLES = {"about", "sources", "facts", "origin", "busy", "exit_status"}
ENTRY = {"id", "note", "input", "expected", "origin"}
INPUT = {
    "query": {"args", "rc", "stdout"},
    "set": {"args", "stdin", "rc", "stdout"},
    "persistence_file": {"text"},
    "plan": {"current", "wanted", "persist", "recorded"},
}
EXPECTED = {
    "query": {"kind", "cards", "enabled"},
    "set": {"ok", "why"},
    "persistence_file": {"recover", "lines", "invalid"},
    "plan": {"commands"},
}
PERSIST = {"now", "wanted"}
KINDS = {
    "busy": "busy",
    "occupied": "busy",
    "in_container": "busy",
    "upgrading": "busy",
    "aborted": "aborted",
    "invalid_parameter": "invalid",
    "not_permitted": "permission",
    "not_supported": "unsupported",
    "unsupported": "unsupported",
    "inner_error": "unavailable",
    "timeout": "unavailable",
    "no_device": "unavailable",
    "not_ready": "unavailable",
    "file": "unavailable",
}
"""The words of the cases for a failed set command, and the kind of our refusal."""


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "fields", lambda: known(document, TABLES | set(CHECKS), "the file")
    for name, check in CHECKS.items():
        for entry in document.get(name, []):
            yield entry["id"], lambda name=name, check=check, entry=entry: run(name, check, entry)


def run(name: str, check: Callable[[dict, dict], None], entry: dict) -> None:
    known(entry, ENTRY, entry["id"])
    known(entry["input"], INPUT[name], entry["id"] + " input")
    known(entry["expected"], EXPECTED[name], entry["id"] + " expected")
    check(entry["input"], entry["expected"])


def known(fields: dict, names: set[str], where: str) -> None:
    unknown = sorted(set(fields) - names)
    assert not unknown, f"unknown fields in {where}: {', '.join(unknown)}"


def query(given: dict, expected: dict) -> None:
    options = dict(zip(given["args"], given["args"][1:], strict=False))
    card, chip = (int(options[option]) if option in options else None for option in ("-i", "-c"))
    kind = expected["kind"]
    if kind == "status":
        found = states(parse_device_share(given["stdout"]), card, chip)
        assert found == by_number(expected["cards"])
    elif kind == "recover":
        assert parse_recover(given["stdout"]) is expected["enabled"]
    elif kind in ("unsupported", "needs_card_id"):
        with pytest.raises(NpuSmiError) as error:
            (parse_recover if "device-share-cfg-recover" in given["args"] else parse_device_share)(given["stdout"])
        assert error.value.kind == {"unsupported": "unsupported", "needs_card_id": "invalid"}[kind]
    else:
        raise AssertionError(f"unknown kind of answer: {kind}")


def set_command(given: dict, expected: dict) -> None:
    found = refusal(given["stdout"], given["rc"])
    if expected["ok"]:
        assert found is None, str(found)
    else:
        assert found is not None, "our code takes this for a success"
        assert found.kind == KINDS[expected["why"]], f"{found.kind}: {found}"


def persistence_file(given: dict, expected: dict) -> None:
    if expected.get("invalid"):
        with pytest.raises(ValueError):
            parse_recovery_file(given["text"])
        return
    assert parse_recovery_file(given["text"]) == {
        "recover": expected["recover"],
        "lines": [{"chip": None} | line for line in expected["lines"]],
    }


def plan(given: dict, expected: dict) -> None:
    persist = given.get("persist", {})
    known(persist, PERSIST, "persist")
    changes = plan_changes(
        by_number(given["current"]),
        by_number(given["wanted"]),
        recovering=persist.get("now", False),
        recover=persist.get("wanted"),
        recorded=by_number(given.get("recorded", {})),
    )
    assert [change.words for change in changes] == expected["commands"]


def by_number(cards: dict) -> dict[int, dict[int, bool]]:
    """Return ``{card: {chip: bool}}``; a card with one state for all has one chip."""
    return {
        int(card): {int(chip): bool(state) for chip, state in (chips if isinstance(chips, dict) else {"0": chips}).items()}
        for card, chips in cards.items()
    }


CHECKS = {"query": query, "set": set_command, "persistence_file": persistence_file, "plan": plan}
