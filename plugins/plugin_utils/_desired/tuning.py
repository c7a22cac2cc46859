# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature tuning: settings of the whole host, now and at every boot."""

from __future__ import annotations


from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, of_values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

SETTINGS = {"governor": str, "numa_balancing": int, "transparent_hugepages": str, "swappiness": int}
"""The settings that there are, each with its type."""


def is_on(settings: OfRole) -> bool:
    return any(value not in ("", None) for value in settings["tuning"].values())


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    asked = settings["tuning"]
    values = {name: check(asked[name]) for name, check in SETTINGS.items() if asked.get(name) not in ("", None)}
    does = "Set governor, NUMA balancing, huge pages and swappiness for work on NPUs and GPUs"
    return of_values(FEATURE, values, settings["python"], does, needs_plan=bool(plan["npus"]))
