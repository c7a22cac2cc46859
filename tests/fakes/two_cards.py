# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Descriptions of small hosts for the simulator."""

from __future__ import annotations

from typing import Any


def host_with(cards: list[dict[str, Any]], **npus: Any) -> dict[str, Any]:
    """Return a host with 32 CPUs on two nodes, and with these cards."""
    return {
        "cpus": {"per_node": 16},
        "nodes": {"count": 2},
        "npus": {"family": "a2", "name": "910B3", "memory_mib": 65536, "cards": cards, **npus},
    }


def two_cards(first: int, second: int) -> dict[str, Any]:
    """Return a host with NPU 0 on the one node and NPU 1 on the other."""
    return host_with([{"npu": 0, "bdf": "0000:c1:00.0", "node": first}, {"npu": 1, "bdf": "0000:01:00.0", "node": second}])
