# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nerdctl run, with the systemd cgroup manager; the flags are docker's.

This module is private to the collection.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = container.OPTIONS | container.ASCEND_RUNTIME


def recipe(workload: Workload, options: Options) -> Recipe:
    devices = container.devices(workload, options)
    return container.run("nerdctl", workload, options, devices, container.by_gpu_flag(devices.gpus))
