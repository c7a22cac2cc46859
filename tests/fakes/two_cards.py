# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a small host for the simulator."""

from __future__ import annotations

from typing import Any


def two_cards(first: int, second: int) -> dict[str, Any]:
    """Return a host with 32 CPUs on two nodes, and with NPU 0 on the one node and NPU 1 on the other."""
    return {
        "cpus": {"per_node": 16},
        "nodes": {"count": 2},
        "npus": {
            "family": "a2",
            "name": "910B3",
            "memory_mib": 65536,
            "cards": [{"npu": 0, "bdf": "0000:c1:00.0", "node": first}, {"npu": 1, "bdf": "0000:01:00.0", "node": second}],
        },
    }
