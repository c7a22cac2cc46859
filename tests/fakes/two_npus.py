# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology and the plan of a host with two nodes, whose NPUs are numbered against them."""

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

TOPOLOGY = {
    "machine": {"cgroup": "v2", "systemd": 252},
    "cpus": {"online": "0-31", "siblings": []},
    "numa": [{"id": 0, "cpus": "0-15", "memory_mib": 1024}, {"id": 1, "cpus": "16-31", "memory_mib": 1024}],
    "npus": [
        {"kind": "npu", "id": 0, "phy_id": 4, "family": "a2", "pci": "0000:81:00.0", "numa": 1, "affinity": "16-31"},
        {"kind": "npu", "id": 1, "phy_id": 5, "family": "a2", "pci": "0000:01:00.0", "numa": 0, "affinity": "0-15"},
    ],
    "kubelet": None,
}
PLAN = plan(TOPOLOGY, strategy="even_split")
