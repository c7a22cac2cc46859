# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a kubelet whose CPU manager is off."""

from __future__ import annotations

import json

FOLDER = "/etc/kubernetes/kubelet.conf.d"
PATH = FOLDER + "/50-npu-affinity.conf"
STATE = "/var/lib/kubelet/cpu_manager_state"
MEMORY_STATE = "/var/lib/kubelet/memory_manager_state"
TEXT = "# Managed by npu.affinity: changes are overwritten.\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"
NONE = json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 0})
HOST = {
    "/var/lib/kubelet/config.yaml": "cpuManagerPolicy: none\ntopologyManagerPolicy: none",
    "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=" + FOLDER,
    STATE: NONE,
    MEMORY_STATE: "{}",
}
