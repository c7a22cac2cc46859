# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""numactl: a command on a workload's CPUs and memory nodes.

This module is private to the collection.
"""

from __future__ import annotations

import shlex

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import host
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"command", "visible_devices", "engine"})


def recipe(workload: Workload, options: Options) -> Recipe:
    memory = [f"--membind={workload.mems}"] if workload.mems else []
    words = ["numactl", f"--physcpubind={workload.cpus}", *memory, "--", *host.program(workload, options)]
    return Recipe(shlex.join(words), host.unsure(workload, options))
