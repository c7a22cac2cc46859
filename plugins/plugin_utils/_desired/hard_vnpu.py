# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hard_vnpu: the hard vNPUs of NPUs, now and after each boot: the driver restores them, or else the unit creates them again."""

from __future__ import annotations

import dataclasses

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.hard_vnpu.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.hard_vnpu.splitting import MODE, RECOVER, value_of
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import BEFORE_ENGINES, BOOT_ORDER, Feature, of_values
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import find, is_lost
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.vnpus import is_hard

_KEPT_BY_DRIVER = {"on": True, "off": False}


def is_on(settings: OfRole) -> bool:
    return any(map(is_hard, settings["vnpus"]))


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """Return the hard vNPUs of each NPU, and the unit that creates them at boot where the driver does not."""
    if not plan["npus"]:
        return Feature()
    asked = _vnpus.with_names(settings["vnpus"])
    if reasons := _vnpus.refusals(topology, plan, asked):
        raise ValueError(" ".join(reasons))
    asked = list(filter(is_hard, asked))
    npu_of = {vnpu["name"]: vnpu["npu"] for vnpu in asked}
    parts: dict[str, dict[int, str]] = {}
    for vnpu in _vnpus.vnpus(topology, plan, asked):
        entry = find(plan, npu_of[vnpu["name"]])[0]
        if not is_lost(plan, entry):
            parts.setdefault(f"{entry['card']}:{entry['chip']}", {})[vnpu["vnpu_id"]] = vnpu["template"]
    values = {key: value_of(listed) for key, listed in parts.items()}
    by_driver = _KEPT_BY_DRIVER.get(settings["recover"], (topology.get("vnpus") or {}).get("recover"))
    switches = {MODE: "docker"}
    if settings["recover"] in _KEPT_BY_DRIVER:
        switches[RECOVER] = "enable" if by_driver else "disable"
    live = {"values": {**switches, **values}, "npu_smi": settings["npu_smi"] or "", "timeout": settings["timeout"]}
    made = of_values(FEATURE, live, settings["python"], "Split NPUs into hard vNPUs", BOOT_ORDER + BEFORE_ENGINES, needs_plan=True)
    return dataclasses.replace(made, files=made.files[:1], enabled=()) if by_driver else made
