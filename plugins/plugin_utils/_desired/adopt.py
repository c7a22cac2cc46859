# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature adopt: whether running work is confined to the CPUs of its NPUs, and the unit that does it for work that starts later."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.fitting import SWITCHES
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import DROP_INS, FEATURE, SETTINGS
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, watched
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

REPORT, KEEP = "report", "keep"
"""The choice with which the feature is absent, and the one that leaves it as the last bind made it."""
_ABOUT = f"{MARKER}: changes are overwritten. How work that starts later is adopted."
PRESENT = tuple(pattern for pattern in FEATURE.owned if pattern != DROP_INS)
"""What the desired state decides on; which services have a drop-in depends on what runs on the host."""


def with_mode_in_force(topology: Topology, settings: OfRole) -> OfRole:
    """Return the settings of role adopt with those in force in place of ``keep``: work stays adopted until that is switched off by name."""
    if settings.get("adopt") != KEEP:
        return settings
    in_force = topology.get("adopt") or {}
    mode = in_force.get("mode", REPORT)
    moves = settings["move_memory"] or bool(in_force.get("move_memory"))
    pods = settings["pods"] or bool(in_force.get("pods"))
    return {**settings, "adopt": mode, "move_memory": moves, "pods": pods}


@remark("NPU_BIND_EFFECT")
def remarks(topology: Topology, settings: OfRole) -> list[str]:
    """Return a sentence where a bind gives back what is adopted. ``settings``: those of :func:`with_mode_in_force`."""
    mode = (topology.get("adopt") or {}).get("mode")
    given_back = f"A bind gives work adopted by npu_affinity_adopt={mode} the CPUs that it had before (npu_affinity_adopt=report)."
    return [given_back] if mode and not is_on(settings) else []


def is_on(settings: OfRole) -> bool:
    """Whether role adopt, which has choices in place of a switch, is to change anything."""
    return settings["adopt"] != REPORT


def idle(settings: OfRole) -> tuple[Sentence, ...]:
    sentence = Sentence("NPU_NO_EFFECT", "npu_affinity_adopt_pods has no effect: nothing is adopted; set npu_affinity_adopt, too.")
    return (sentence,) if settings["pods"] else ()


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    mode = settings["adopt"]
    if settings["bound_by"] == "workers":
        raise coded_error(
            "NPU_WORKERS_CONFLICT",
            f"npu_affinity_adopt={mode} confines running work from outside, and with npu_affinity_bound_by=workers the workers bind "
            "themselves; set npu_affinity_adopt=report, or npu_affinity_bound_by=host.",
        )
    if not plan["npus"]:
        return Feature()
    variables = {name: True for name in SWITCHES if settings["environment"].get(name)}
    live = {"mode": mode, "move_memory": settings["move_memory"], "pods": settings["pods"], "environment": variables}
    notes = tuple(_without_effect(topology, plan, settings))
    if mode != "always":
        return Feature(owned=PRESENT, needs_plan=True, notes=notes, live=live)
    return watched(
        {"path": SETTINGS, "content": previous.dump(_ABOUT, {"rebind_limit": int(settings["rebind_limit"]), **live}), "mode": "0644"},
        settings["python"],
        owned=PRESENT,
        notes=notes,
        live=live,
    )


@remark("NPU_NO_EFFECT")
def _without_effect(topology: Topology, plan: Plan, settings: OfRole) -> Iterator[str]:
    kubelet = topology.get("kubelet")
    if settings["pods"] and not kubelet:
        yield "npu_affinity_adopt_pods has no effect: this host has no kubelet."
    if settings["pods"] and kubelet and kubelet["policy"] != "none":
        why = f"the kubelet assigns CPUs to pods itself (CPU manager policy {kubelet['policy']})"
        yield f"npu_affinity_adopt_pods has no effect: {why}."
    if settings["move_memory"] and not any(memory_nodes(npu) for npu in plan["npus"]):
        yield "npu_affinity_move_memory has no effect on running work: npu_affinity_memory=none leaves it all memory nodes."
