# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host whose cards containers share."""

from __future__ import annotations

MACHINE = {
    "cpus": {"per_node": 16},
    "nodes": {"count": 2},
    "npus": {
        "family": "a2",
        "name": "910B3",
        "memory_mib": 65536,
        "cards": [{"npu": 0, "bdf": "0000:c1:00.0", "node": 1}, {"npu": 1, "bdf": "0000:01:00.0", "node": 0}],
    },
}
VENDOR = ("/simulator", "/var/log", "/run", "/etc/device_share.cfg", "/proc", "/sys")


def ours(snapshot):
    return {path: state if isinstance(state, str) else state[2] for path, state in snapshot.items() if not path.startswith(VENDOR)}
