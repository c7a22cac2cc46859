# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that change a host, as ``_attributes.author`` documents them."""

from __future__ import annotations

from typing import Any

AUTHORED: dict[str, Any] = {
    "author": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "run": {
        "type": "dict",
        "options": {
            "id": {"type": "str", "required": True},
            "time": {"type": "str", "required": True},
            "inventory": {"type": "str", "default": ""},
        },
    },
}
