# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service of a Compose file. Compose has no key for memory nodes: the slice holds them."""

from __future__ import annotations

from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = (container.OPTIONS | container.ASCEND_RUNTIME) - {"arguments"}


def recipe(workload: Workload, options: Options) -> Recipe:
    service: dict[str, Any] = {"image": _literal(options.image)}
    if workload.slice:
        service["cgroup_parent"] = workload.slice
    service["cpuset"] = workload.cpus
    devices = container.devices(workload, options)
    if devices.gpus:
        request = {"driver": "nvidia", "device_ids": [str(number) for number in devices.gpus], "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [request]}}}
    paths = {"devices": [f"{node}:{node}" for node in devices.nodes], "volumes": list(devices.volumes)}
    service.update({key: listed for key, listed in paths.items() if listed})
    if devices.environment:
        service["environment"] = dict(devices.environment)
    if options.command:
        service["command"] = [_literal(word) for word in options.command]
    notes = list(devices.notes)
    if workload.mems and not workload.held_by_slice:
        notes.append(f"Compose has no key for memory nodes and no slice holds them: memory is not bound to nodes {workload.mems}.")
    return Recipe(yaml.safe_dump({"services": {workload.named(): service}}, sort_keys=False, width=1000), notes)


def _literal(text: str) -> str:
    """Return text that Compose does not take for a variable."""
    return text.replace("$", "$$")
