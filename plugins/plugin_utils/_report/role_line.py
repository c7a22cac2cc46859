# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role did on a host, in one line, from the result of its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._table import count

LISTS = (("files", "file", "written"), ("removed", "file", "removed"), ("folders", "folder", "created"), ("missing", "file", "missing"))
"""Lists in results of modules, what is in them, and what became of it."""


def role_line(role: str, host: str, result: Mapping[str, Any], check: bool) -> str:
    """Return a line such as ``a2-01: role slices changed the host: 12 files written, 1 file removed``."""
    if result.get("skipped"):
        return f"{host}: role {role} had nothing to do"
    if not result.get("changed"):
        return f"{host}: role {role} changed nothing, the host is as it should be"
    parts = [f"{count(len(result[key]), noun)} {done}" for key, noun, done in LISTS if result.get(key)]
    return f"{host}: role {role} {'would change' if check else 'changed'} the host{': ' if parts else ''}{', '.join(parts)}"
