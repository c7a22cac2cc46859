# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container unit of Podman's Quadlet. It runs with --cgroups=split inside its service, so the service is put into the slice."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import unconfined
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container as _container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import units
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = _container.OPTIONS


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.cgroup_sets_cpus:
        raise ValueError(f"{workload.title}: Quadlet needs cgroup v2, which this host does not have; use podman")
    if any(argument.startswith(("--cgroup-parent", "--cgroups")) for argument in options.arguments):
        raise ValueError("arguments: Quadlet splits the cgroup of its service, which Slice= puts into the slice; leave --cgroup-parent out")
    devices = _container.devices(workload, options)
    container = [("Image", units.literal(options.image))]
    container += [("ContainerName", workload.name)] if workload.name else []
    container += [("PodmanArgs", units.command_line([*_container.cpuset(workload), *options.arguments]))]
    container += [("AddDevice", device) for device in [*_container.by_gpu_name(devices.gpus), *devices.nodes]]
    container += [("Volume", volume) for volume in devices.volumes]
    container += [("Environment", f"{name}={value}") for name, value in devices.environment.items()]
    container += [("Exec", units.command_line(options.command))] if options.command else []
    service = [("Slice", workload.slice)] if workload.slice else []
    service += [("CPUAffinity", ""), *unconfined(workload.topology, workload.cpus).items()]  # which old runtimes hand down
    return Recipe(
        units.text({"Container": container, "Service": service}),
        [
            f"Save it as /etc/containers/systemd/{workload.named()}.container, then: systemctl daemon-reload",
            "At boot it starts with a section [Install] and WantedBy=multi-user.target in it.",
            *devices.notes,
        ],
    )
