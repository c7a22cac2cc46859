# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests by which two desired states, or two texts, are known to be the same."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Mapping, cast

if TYPE_CHECKING:
    from ..._base.documents import AppliedState

_LEFT_OUT = ("digest", "notes", "absent")
"""The digest itself, sentences for the user, and what follows from the features that are absent."""


def digest(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a desired state as canonical JSON: numbers as keys are text, as they are after JSON, and lists have no order.

    Features that are applied one by one come in another order than those of a bind, and those that nobody has applied are missing. They
    count as absent, and paths where only absent features have files do not count.
    """
    plain = json.loads(json.dumps({key: value for key, value in state.items() if key not in _LEFT_OUT and value != {}}))
    if "features" in plain:
        plain["features"] = {name: presence for name, presence in plain["features"].items() if presence != "absent"}
    if "owned" in plain:
        undone = {pattern for traces in state.get("absent", {}).values() for pattern in traces["owned"]}
        plain["owned"] = [pattern for pattern in plain["owned"] if pattern not in undone]
    parts = {key: sorted(map(_canonical, value)) if isinstance(value, list) else _canonical(value) for key, value in plain.items()}
    return hashlib.sha256(_canonical(parts).encode()).hexdigest()


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text without blanks around it."""
    return hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).hexdigest()


def reduced(state: AppliedState) -> AppliedState:
    """Return a state with digests for the texts of its files and for what features want of the running host. Two states that are reduced
    differ as they did before."""
    files = [dict(file, content=text_digest(file["content"])) for file in state["files"]]
    live = {name: text_digest(_canonical(value)) for name, value in state["live"].items()}
    return cast("AppliedState", {**state, "files": files, "live": live})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
