# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms that are one command: a container engine's own, or one that puts a program of the host on its CPUs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import numactl_memory
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container, host, units
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload


@dataclass(frozen=True)
class Engine:
    """``run`` of a container engine with the systemd cgroup driver. ``gpus`` returns the engine's own flags for GPUs."""

    name: str
    gpus: Callable[[Sequence[int]], list[str]]
    OPTIONS: frozenset[str] = container.OPTIONS

    def recipe(self, workload: Workload, options: Options) -> Recipe:
        given = container.devices(workload, options)
        words = [self.name, "run", *([f"--name={workload.name}"] if workload.name else [])]
        words += [f"--cgroup-parent={workload.slice}"] if workload.slice else []
        words += [*container.cpuset(workload), *self.gpus(given.gpus)]
        words += [f"--device={node}" for node in given.nodes]
        words += [f"--volume={volume}" for volume in given.volumes]
        words += [f"--env={name}={value}" for name, value in given.environment.items()]
        return Recipe(shlex.join([*words, *options.arguments, options.image, *options.command]), given.notes)


@dataclass(frozen=True)
class Starter:
    """A command that runs a program of the host. ``words`` returns what stands before the program, ``notes`` what the user has to know."""

    words: Callable[[Workload], list[str]]
    notes: Callable[[Workload], list[str]] = lambda workload: []
    OPTIONS: frozenset[str] = frozenset({"command", "visible_devices", "engine", "environment"})

    def recipe(self, workload: Workload, options: Options) -> Recipe:
        words = [*self.words(workload), *host.program(workload, options)]
        return Recipe(shlex.join(words), [*self.notes(workload), *host.unsure(workload, options)])


def _flag_of_docker(gpus: Sequence[int]) -> list[str]:
    """Return the flag of docker and nerdctl. It is read as CSV, so that several ids need quotes that the shell must leave alone."""
    ids = ",".join(map(str, gpus))
    return [f'--gpus="device={ids}"' if len(gpus) > 1 else f"--gpus=device={ids}"] if gpus else []


def _flags_of_podman(gpus: Sequence[int]) -> list[str]:
    return [f"--device={name}" for name in container.by_gpu_name(gpus)]


def _taskset(workload: Workload) -> list[str]:
    return ["taskset", "--cpu-list", workload.cpus]


def _without_memory(workload: Workload) -> list[str]:
    return [f"taskset does not bind memory to nodes {workload.mems}; numactl does."] if workload.mems else []


def _numactl(workload: Workload) -> list[str]:
    return ["numactl", f"--physcpubind={workload.cpus}", *numactl_memory(workload.nearest, workload.mems), "--"]


def _scope(workload: Workload) -> list[str]:
    if not workload.cgroup_sets_cpus:
        raise ValueError(f"{workload.title}: systemd cannot hold CPU sets for a scope on this host (cgroup v1); use numactl or taskset")
    settings = units.settings(workload)
    words = ["systemd-run", "--scope", *([f"--slice={settings.pop('Slice')}"] if "Slice" in settings else [])]
    words += [f"--unit={workload.name}.scope"] if workload.name else []
    return [*words, *(f"--property={key}={value}" for key, value in settings.items()), "--"]


COMMANDS: Mapping[str, Engine | Starter] = {
    "docker": Engine("docker", _flag_of_docker, container.OPTIONS | container.ASCEND_RUNTIME),
    "nerdctl": Engine("nerdctl", _flag_of_docker, container.OPTIONS | container.ASCEND_RUNTIME),
    "podman": Engine("podman", _flags_of_podman),
    "numactl": Starter(_numactl),
    "systemd_run": Starter(_scope),
    "taskset": Starter(_taskset, _without_memory),
}
"""podman runs as root: rootless containers cannot join the slices of the system."""
