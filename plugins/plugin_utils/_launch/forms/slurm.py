# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of Slurm's gres.conf, one for each NPU.

``Cores=`` takes Slurm's own numbers of whole cores, those that ``lstopo -l`` shows as ``Core L#`` (gres.conf(5)). Slurm prefers these
cores for the NPU; a job that must have no others asks with ``--gres-flags=enforce-binding``.

This module is private to the collection.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import numbered, whole_cores
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS: frozenset[str] = frozenset()
FILES = {"npu": "/dev/davinci", "gpu": "/dev/nvidia"}


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.topology:
        raise ValueError(f"{workload.title}: Slurm counts whole cores, and CPUs are all that a plan has; give topology")
    if not workload.cards:
        raise ValueError(f"{workload.title} names no NPU, and gres.conf has a line for each; give npus")
    cores = numbered(workload.topology)
    node = f"NodeName={options.name} " if options.name else ""
    lines = []
    split: set[int] = set()
    for card in workload.cards:
        pool = set(expand(card.pool))
        whole = [number for number, core in enumerate(cores) if pool.issuperset(core)]
        split |= pool - {cpu for number in whole for cpu in cores[number]}
        if not whole:
            raise ValueError(f"{workload.title}: CPUs {card.pool} have no whole core, and Slurm counts whole cores; plan with smt=cores")
        lines.append(f"{node}Name={workload.kind} File={FILES[workload.kind]}{card.node} Cores={compress(whole)}\n")
    notes = ["Compare with Core L# of lstopo -l on the host. A job that must have no other cores asks for --gres-flags=enforce-binding."]
    if workload.irq:
        busy = whole_cores(workload.topology, expand(workload.irq))
        numbers = compress(number for number, cpu in enumerate(cpu for core in cores for cpu in core) if cpu in busy)
        notes.append(f"CpuSpecList={numbers} of the node in slurm.conf keeps jobs off the cores that take interrupts, in numbers of Slurm.")
    if split:
        notes.append(f"CPUs {compress(split)} are left out: other threads of their cores are not in the pool.")
    return Recipe("".join(lines), [*notes, *container.unsure(workload)], starts=False)
