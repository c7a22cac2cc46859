# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers may share chips, and the unit that sets it again at boot."""

from __future__ import annotations

import dataclasses

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import DeviceShareLive, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.feature import FEATURE
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import BEFORE_ENGINES, Feature, no_effect, of_values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

LONGER = 2
"""How many times as long as other commands a call may take that changes device share."""
_ORDER = "After=systemd-modules-load.service systemd-udev-settle.service\n" + BEFORE_ENGINES


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    has_npus = any(npu["kind"] == "npu" for npu in topology["npus"])
    if not (has_npus or settings["npus"]):
        absent = Sentence("NPU_NO_EFFECT", f"{no_effect('npu_affinity_device_share_enabled', 'this host')}: it has no NPU.")
        return Feature(python=settings["python"], needs_plan=True, notes=(absent,) if plan["npus"] else ())
    live: DeviceShareLive = {
        "npus": settings["npus"],
        "ignore_busy": settings["ignore_busy"],
        "npu_smi": settings["npu_smi"] or "",
        "timeout": LONGER * settings["timeout"],
        "wait": settings["wait"],
    }
    limit = str(live["wait"] + 180 + 10 * live["timeout"])
    does = "Let containers share the NPUs, which the driver forgets at a reboot"
    made = of_values(FEATURE, live, settings["python"], does, _ORDER, limit=limit, needs_plan=True)
    return made if has_npus else dataclasses.replace(made, files=(), enabled=(), runtime=False)
