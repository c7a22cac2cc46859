# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's state file: published ones, broken ones, and the checksums of both forms."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

from adaptors import _topology

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import state_file

FIELDS = {
    "published": ({"format", "file", "text"}, {"checksum_follows_rule", "valid"}),
    "broken": ({"format", "file", "text"}, {"valid"}),
    "checksums": ({"format", "file"}, {"checksum", "text_hashed"}),
    "data_checksums": ({"data"}, {"dataChecksum"}),
}
DOCUMENT = {
    "about",
    "checksum_rule",
    "collection_rule",
    "known_upstream_bug",
    "newest_branch",
    "validity_rules",
    "validity_messages",
    "sources",
}
VERSIONS = {"v1": 1, "v2": 2}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    _topology.require_known(document, DOCUMENT | set(FIELDS), "the document")
    for name in FIELDS:
        for case in document.get(name, ()):
            yield f"{name} {case['id']} {case['note']}".strip(), lambda name=name, case=case: check(name, case)


def check(name: str, case: dict) -> None:
    _topology.require_known(case["input"], FIELDS[name][0], "input")
    _topology.require_known(case["expected"], FIELDS[name][1], "expected")
    given, expected = case["input"], case["expected"]
    if name == "data_checksums":
        assert state_file.data_checksum(given["data"]) == expected["dataChecksum"]
    elif name == "checksums":
        file = given["file"]
        hashed = state_file.dump(file["policyName"], file["defaultCpuSet"], file.get("entries"), VERSIONS[given["format"]])
        assert (hashed, state_file.fnv1a(hashed)) == (expected["text_hashed"], expected["checksum"])
    else:
        state(given, expected)


def state(given: dict, expected: dict) -> None:
    try:
        found = state_file.parse(given["text"] if "text" in given else json.dumps(given["file"]))
    except ValueError:
        found = None
    assert expected["valid"] in (None, found is not None and not found.problems), found
    if "checksum_follows_rule" in expected:
        assert found.checksum == expected["checksum_follows_rule"]
