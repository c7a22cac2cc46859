# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman run, as root: rootless containers cannot join the slices of the system. GPUs by their names of the Container Device Interface.

This module is private to the collection.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = container.OPTIONS


def recipe(workload: Workload, options: Options) -> Recipe:
    devices = container.devices(workload, options)
    return container.run("podman", workload, options, devices, [f"--device={name}" for name in container.by_gpu_name(devices.gpus)])
