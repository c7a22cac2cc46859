# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature kubelet: the drop-in that makes the kubelet's CPU manager agree with the plan."""

from __future__ import annotations

import posixpath
import re

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, no_effect
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.drop_in import kubelet_drop_in
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

FOLDER, NAME = "/etc/kubernetes/kubelet.conf.d", "50-npu-affinity.conf"
_OPTION = re.compile(r"^(?=[a-z_]+: )")


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    kubelet = topology.get("kubelet")
    if not plan["npus"]:
        return Feature(needs_plan=True)
    if not kubelet:
        absent = Sentence("NPU_NO_EFFECT", f"{no_effect('npu_affinity_kubelet_enabled', 'this host')}: it has no kubelet.")
        return Feature(needs_plan=True, notes=(absent,))
    folder = kubelet.get("config_dir")
    if not folder:
        raise coded_error(
            "NPU_KUBELET_CONFLICT",
            f"The kubelet reads no folder of drop-ins. Start it with --config-dir={FOLDER}, for example (Kubernetes 1.28 or newer).",
        )
    path = posixpath.join(folder, NAME)
    try:
        content = kubelet_drop_in(plan, topology, "static", settings["options"], settings["topology_policy"], settings["reserved"])
    except ValueError as error:
        raise ValueError(_OPTION.sub("npu_affinity_kubelet_", str(error))) from error
    return Feature(needs_plan=True, live={"path": path, "content": content})
