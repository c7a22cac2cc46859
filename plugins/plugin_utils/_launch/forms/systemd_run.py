# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-run --scope: a command in the foreground, in the slice of its NPU.

This module is private to the collection.
"""

from __future__ import annotations

import shlex

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import host, units
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"command", "visible_devices", "engine"})


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.cgroup_sets_cpus:
        raise ValueError(f"{workload.title}: systemd cannot hold CPU sets for a scope on this host (cgroup v1); use numactl or taskset")
    settings = units.settings(workload)
    words = ["systemd-run", "--scope", *([f"--slice={settings.pop('Slice')}"] if "Slice" in settings else [])]
    words += [f"--unit={workload.name}.scope"] if workload.name else []
    words += [f"--property={key}={value}" for key, value in settings.items()]
    return Recipe(shlex.join([*words, "--", *host.program(workload, options)]), host.unsure(workload, options))
