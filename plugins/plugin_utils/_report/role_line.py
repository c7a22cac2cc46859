# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role did on a host, from the result of its module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.table import count

LISTS = (("files", "file", "written"), ("removed", "file", "removed"), ("folders", "folder", "created"), ("missing", "file", "missing"))
"""Lists in results of modules, with words for their elements and for what was done."""


def role_line(role: str, host: str, result: Mapping[str, Any], check: bool) -> str:
    """Return a line such as ``a2-01: role slices changed the host: 12 files written, 1 file removed``."""
    if result.get("skipped"):
        return f"{host}: role {role} had nothing to do"
    if not result.get("changed"):
        return f"{host}: role {role} changed nothing, the host matches its plan"
    parts = [f"{count(len(result[key]), noun)} {done}" for key, noun, done in LISTS if result.get(key)]
    return f"{host}: role {role} {'would change' if check else 'changed'} the host{': ' if parts else ''}{', '.join(parts)}"


def lines_after(feature: str, notes: Mapping[str, Sequence[str]], result: Mapping[str, Any]) -> list[str]:
    """Return what a user needs to know after a feature was applied, next to what changed; ``notes`` are those of the desired state."""
    if feature != "slices":
        return [*result["remarks"], *notes[feature]]
    if result["changed"] or result["restart_needed"]:
        waiting = result["restart_needed"]
        restart = f"These services run as they were started until they are restarted: {', '.join(waiting)}"
        return [*notes["slices"], *([restart] if waiting else [])]
    return []
