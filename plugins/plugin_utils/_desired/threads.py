# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature threads: what names processes and threads, and the units that place those that start later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.places import SETTINGS, THREADS_SERVICE, THREADS_TIMER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import ENVIRONMENT, Feature, unit
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import present_ids

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

OWNED = FEATURE.owned
_MOVES_NOTHING = "npu_affinity_threads_memory_limit has no effect: npu_affinity_memory=none leaves processes all memory nodes."
ABOUT = f"{MARKER}: changes are overwritten. Which processes {THREADS_SERVICE} places, and by which names."


def wanted(topology: Topology, plan: Plan, settings: Mapping[str, Any]) -> Feature:
    """Return what places the threads of a plan's processes; ``settings``: those of role threads."""
    if not settings["enabled"]:
        return Feature(owned=OWNED)
    if settings["bound_by"] == "workers":
        raise ValueError(
            Sentence(
                "NPU_WORKERS_CONFLICT",
                "npu_affinity_threads_enabled places threads from outside, and with npu_affinity_bound_by=workers the workers do it "
                "themselves; switch one of the two off.",
            )
        )
    if not plan["npus"]:
        return Feature(owned=OWNED)
    found, patterns = processes(topology, plan, settings), settings["patterns"]
    names = (
        f'{{"about": {json.dumps(ABOUT)},\n"patterns": {json.dumps(patterns, sort_keys=True)},\n'
        f'"processes": {json.dumps(found, sort_keys=True)}}}\n'
    )
    limit = settings["memory_limit"]
    moves_nothing = bool(limit) and not any(map(memory_nodes, plan["npus"]))
    return Feature(
        notes=(Sentence("NPU_NO_EFFECT", _MOVES_NOTHING),) * moves_nothing,
        files=(
            {"path": SETTINGS, "content": names, "mode": "0644"},
            unit(THREADS_SERVICE, _service(settings)),
            unit(THREADS_TIMER, _timer(settings)),
        ),
        owned=OWNED,
        enabled=(THREADS_TIMER,),
        started=(THREADS_TIMER,),
        python=settings["python"],
        runtime=True,
        needs_plan=True,
        live={"processes": found, "patterns": patterns, "memory": "migrate" if limit else "none", "memory_limit": limit},
    )


def processes(topology: Topology, plan: Plan, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the processes whose threads are placed, as ``groups_of`` takes them: first those in the slices of
    single NPUs, then what the settings name. Those of lost NPUs have no place."""
    found: list[dict[str, Any]] = [{"npus": []}]
    for workload in workloads(plan, settings["workloads"], topology):
        if workload["npus"]:
            found.append({"npus": workload["npus"], "slice": workload["slice"]})
            found += [{"npus": workload["npus"], "unit": name} for name in workload["units"]]
    for service in settings["services"]:
        if npus := present_ids(plan, service["npus"], "npu_affinity_services", service["unit"]):
            found.append({"npus": npus, "unit": service["unit"]})
    for entry in settings["processes"]:
        named = entry.get("npus") or []
        npus = present_ids(plan, named, "npu_affinity_threads_processes", "an entry")
        if npus or not named:
            found.append({**entry, "npus": npus})
    return found


def _service(settings: Mapping[str, Any]) -> str:
    return (
        "[Unit]\nDescription=Place the threads of workloads on the CPUs of their roles\n"
        f"ConditionPathExists={PLAN}\n\n"
        f"[Service]\nType=oneshot\n{ENVIRONMENT}ExecStart={settings['python']} -m npu_affinity threads\nTimeoutStartSec=240\n"
    )


def _timer(settings: Mapping[str, Any]) -> str:
    return (
        "[Unit]\nDescription=Place the threads of workloads that have started since\n\n"
        f"[Timer]\nOnBootSec=1min\nOnUnitActiveSec={settings['interval'] or '1min'}\nAccuracySec=5s\n\n[Install]\nWantedBy=timers.target\n"
    )
