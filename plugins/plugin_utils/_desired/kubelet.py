# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature kubelet: the drop-in that makes the kubelet's CPU manager agree with the plan.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature


def wanted(topology: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]) -> Feature:
    """Return the drop-in where it counts: when it was written, or may be (``restart``). ``settings``: those of role kubelet, with the
    drop-in's ``content``."""
    kubelet = topology.get("kubelet")
    if not (settings["enabled"] and kubelet and (settings["restart"] or settings["file"] in kubelet["sources"])):
        return Feature()
    return Feature(files=({"path": settings["file"], "content": settings["content"], "mode": "0644"},))
