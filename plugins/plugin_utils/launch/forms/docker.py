# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docker run, with the systemd cgroup driver.

This module is private to the collection.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils.launch import _container
from ansible_collections.npu.affinity.plugins.plugin_utils.launch._options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils.launch._workload import Recipe, Workload

OPTIONS = _container.OPTIONS | _container.ASCEND_RUNTIME


def recipe(workload: Workload, options: Options) -> Recipe:
    devices = _container.devices(workload, options)
    return _container.run("docker", workload, options, devices, _container.by_gpu_flag(devices.gpus))
