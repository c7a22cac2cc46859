# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ctr run of containerd, with the systemd cgroup driver of runc. The slice holds the CPU sets: ctr has flags for them from 2.0 on."""

from __future__ import annotations

import shlex

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options, release
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = container.OPTIONS | {"containerd_version"}
HAS_CPU_SETS = (2, 0)
"""The release from which on ctr has --cpuset-cpus and --cpuset-mems (containerd pull request 8601)."""
SPLITS_AT_COMMAS = ((2, 4), (2, 4, 0))
"""The release whose ctr takes one --mount or --env for several (containerd issue 14181)."""


def recipe(workload: Workload, options: Options) -> Recipe:
    has_sets = release(options.containerd_version) >= HAS_CPU_SETS
    if not has_sets and not workload.held_by_slice:
        raise ValueError(
            f"{workload.title}: ctr of containerd {options.containerd_version} has no flags for CPU sets, and no slice holds "
            f"CPUs {workload.cpus} for this workload alone; use nerdctl, or containerd 2.0 and containerd_version='2.0'"
        )
    name = workload.named()
    given = container.devices(workload, options)
    words = ["ctr", "run"]
    words += ["--runc-systemd-cgroup", f"--cgroup={workload.slice}:ctr:{name}"] if workload.slice else []
    words += container.cpuset(workload) if has_sets else []
    words += [f"--gpus={number}" for number in given.gpus]
    words += [f"--device={node}" for node in given.nodes]
    words += [_mount(volume) for volume in given.volumes]
    words += [f"--env={variable}={value}" for variable, value in given.environment.items()]
    split = "ctr of containerd 2.4.0 splits --mount and --env at commas and fails; use a later one."
    notes = [*given.notes, *([split] if release(options.containerd_version) in SPLITS_AT_COMMAS else [])]
    return Recipe(shlex.join([*words, *options.arguments, options.image, name, *options.command]), notes)


def _mount(volume: str) -> str:
    source, target, *mode = volume.split(":")
    return f"--mount=type=bind,src={source},dst={target},options=rbind:{mode[0] if mode else 'rw'}"
