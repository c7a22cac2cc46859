# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drop-in for a service of systemd."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import slices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import unconfined
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import host, units
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"visible_devices", "engine", "environment"})


def recipe(workload: Workload, options: Options) -> Recipe:
    settings = units.settings(workload)
    inherited = unconfined(workload.topology, workload.cpus) if workload.topology and workload.cgroup_sets_cpus else {}
    unit = f"{workload.name or 'UNIT'}.service"
    return Recipe(
        slices.service_text(settings | inherited, host.environment(workload, options)),
        [
            f"Paste it into the editor of: systemctl edit {unit}. It takes effect when the service is restarted.",
            *host.unsure(workload, options),
        ],
    )
