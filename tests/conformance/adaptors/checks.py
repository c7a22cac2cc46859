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
ENTRY = "id note input expected origin"
TABLES = {"machine": "machines", "topology": "topologies"}
"""Fields of an input that name an entry in a table of the document."""


def require_known(fields: dict, known: str | set[str], what: str) -> None:
    """Fail where a case has a field that no adaptor looks at."""
    unknown = set(fields) - (set(known.split()) if isinstance(known, str) else known)
    assert not unknown, f"unknown fields in {what}: {sorted(unknown)}"


def exactly(expected: dict, message: str) -> bool:
    return message == expected.get("error")


def contains(expected: dict, message: str) -> bool:
    return bool(expected.get("error")) and expected["error"] in message


def never(expected: dict, message: str) -> bool:
    return False


def _input(entry: dict, document: dict) -> dict:
    require_known(entry, ENTRY, "the case")
    return {
        field: document[TABLES[field]][value] if TABLES.get(field) in document else value for field, value in entry["input"].items()
    }  # fmt: skip


def returns(function: Callable[..., dict], refused: Callable[[dict, str], bool] = never) -> Check:
    """Call with the input's fields as keyword arguments. The result, or the refusal's message, has what the case expects."""

    def check(entry: dict, document: dict) -> None:
        expected = entry["expected"]
        try:
            found = function(**_input(entry, document))
        except (ValueError, AnsibleError) as refusal:
            assert refused(expected, str(refusal)), str(refusal)
        else:
            assert {field: found.get(field) for field in expected} == expected

    return check


def compares(function: Callable[[dict, dict], None], given: str, expected: str) -> Check:
    """Call with the input, which has no other fields than ``given``, and with what the case expects."""

    def check(entry: dict, document: dict) -> None:
        require_known(entry["input"], given, "input")
        require_known(entry["expected"], expected, "expected")
        function(_input(entry, document), entry["expected"])

    return check


def skipped(reason: str) -> Check:
    def check(entry: Any, document: dict) -> None:
        pytest.skip(reason)

    return check
