# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways in which a case calls the collection and compares what it returns: the columns of the table of families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible.errors import AnsibleError

Check = Callable[[Any, dict], None]
"""Takes an entry of a document's section and the document."""
Refused = Callable[[dict, str], bool]
"""Says whether a case expects a refusal with this message."""
ENTRY = "id note input expected origin"
TABLES = {"machine": "machines", "topology": "topologies"}
"""Fields of an input that name an entry in a table of the document."""


def require_known(fields: dict, known: str | set[str], what: str) -> None:
    """Fail where a case has a field that no adaptor looks at."""
    unknown = set(fields) - (set(known.split()) if isinstance(known, str) else known)
    assert not unknown, f"unknown fields in {what}: {sorted(unknown)}"


def contains(expected: dict, message: str) -> bool:
    error = expected.get("error") or {}
    return bool(error) and (error if isinstance(error, str) else error.get("contains", error.get("message"))) in message


def never(expected: dict, message: str) -> bool:
    return False


def _input(entry: dict, document: dict) -> dict:
    require_known(entry, ENTRY, "the case")
    tables = {field: document[table] for field, table in TABLES.items() if table in document}
    return {field: tables[field][value] if field in tables else value for field, value in entry["input"].items()}


def returns(function: Callable[..., Any], refused: Refused = never, field: str | None = None) -> Check:
    """Call with the input's fields as keyword arguments. The result, or the refusal's message, has what the case expects; ``field`` names a
    result that is no mapping."""

    def check(entry: dict, document: dict) -> None:
        expected = entry["expected"]
        try:
            found = function(**_input(entry, document))
        except (ValueError, AnsibleError) as refusal:
            assert refused(expected, str(refusal)), str(refusal)
        else:
            found = found if field is None else {field: found, "error": None}
            assert {name: found.get(name) for name in expected} == expected

    return check


def compares(function: Callable[[dict, dict], None], given: str, expected: str, refused: Refused = never) -> Check:
    """Call with the input, which has no other fields than ``given``, and with what the case expects."""

    def check(entry: dict, document: dict) -> None:
        require_known(entry["input"], given, "input")
        require_known(entry["expected"], expected, "expected")
        try:
            function(_input(entry, document), entry["expected"])
        except ValueError as refusal:
            assert refused(entry["expected"], str(refusal)), str(refusal)
        else:
            assert not entry["expected"].get("error"), "not refused"

    return check


def skipped(reason: str) -> Check:
    return lambda entry, document: pytest.skip(reason)
