# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature threads: what names processes and threads, and the units that place those that start later."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import SETTINGS
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, watched
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import present_ids
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

_MOVES_NOTHING = "npu_affinity_threads_memory_limit has no effect: npu_affinity_memory=none leaves processes all memory nodes."
ABOUT = f"{MARKER}: changes are overwritten. The threads that are placed, by process and name."


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    if settings["bound_by"] == "workers":
        raise coded_error(
            "NPU_WORKERS_CONFLICT",
            "npu_affinity_threads_enabled places threads from outside, and with npu_affinity_bound_by=workers the workers do it "
            "themselves; switch one of the two off.",
        )
    if not plan["npus"]:
        return Feature()
    groups, patterns = processes(topology, plan, settings), settings["patterns"]
    names = (
        f'{{"about": {json.dumps(ABOUT)},\n"patterns": {json.dumps(patterns, sort_keys=True)},\n'
        f'"processes": {json.dumps(groups, sort_keys=True)}}}\n'
    )
    limit = settings["memory_limit"]
    moves_nothing = bool(limit) and not any(map(memory_nodes, plan["npus"]))
    return watched(
        {"path": SETTINGS, "content": names, "mode": "0644"},
        settings["python"],
        notes=(Sentence("NPU_NO_EFFECT", _MOVES_NOTHING),) * moves_nothing,
        live={"processes": groups, "patterns": patterns, "memory": "migrate" if limit else "none", "memory_limit": limit},
    )


def processes(topology: Topology, plan: Plan, settings: OfRole) -> list[dict[str, Any]]:
    """Return the processes whose threads are placed, as ``groups_of`` takes them: first those in the slices of
    single NPUs, then what the settings name. Those of lost NPUs have no place."""
    groups: list[dict[str, Any]] = [{"npus": []}]
    for workload in workloads(plan, settings["workloads"], topology):
        if workload["npus"]:
            groups.append({"npus": workload["npus"], "slice": workload["slice"]})
            groups += [{"npus": workload["npus"], "unit": name} for name in workload["units"]]
    for service in settings["services"]:
        if npus := present_ids(plan, service["npus"], "npu_affinity_services", service["unit"]):
            groups.append({"npus": npus, "unit": service["unit"]})
    for entry in settings["processes"]:
        names = entry.get("npus") or []
        npus = present_ids(plan, names, "npu_affinity_threads_processes", "an entry")
        if npus or not names:
            groups.append({**entry, "npus": npus})
    return groups
