# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""taskset: a command on a workload's CPUs.

This module is private to the collection.
"""

from __future__ import annotations

import shlex

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import host
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"command", "visible_devices", "engine"})


def recipe(workload: Workload, options: Options) -> Recipe:
    notes = [f"taskset does not bind memory to nodes {workload.mems}; numactl does."] if workload.mems else []
    words = ["taskset", "--cpu-list", workload.cpus, *host.program(workload, options)]
    return Recipe(shlex.join(words), [*notes, *host.unsure(workload, options)])
