# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Argument specifications that several modules share; their words are in the documentation fragment of the same options."""

from __future__ import annotations

VNPU_FOLDER, VNPU_SHARED_REGION = "/usr/local/hami-vnpu-core", "/usr/local/hami-shared-region"

PROCESSES = {
    "type": "list",
    "elements": "dict",
    "default": [],
    "options": {
        "npus": {"type": "list", "elements": "int", "default": []},
        "slice": {"type": "str"},
        "unit": {"type": "str"},
        "pids": {"type": "list", "elements": "int"},
        "devices": {"type": "bool", "default": False},
    },
}
PATTERNS = {"type": "dict", "options": {role: {"type": "list", "elements": "str"} for role in ("acl", "release", "kv", "leave")}}
VNPU_LAYOUT = {
    "folder": {"type": "path", "default": VNPU_FOLDER},
    "shared_region": {"type": "path", "default": VNPU_SHARED_REGION},
    "shared_mode": {"type": "str", "choices": ["1777", "0777"], "default": "1777"},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, "sha256": {"type": "str", "required": True}},
    },
}
