# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of Slurm's gres.conf, one for each NPU, and the line of slurm.conf that fits them.

``Cores=`` takes Slurm's own numbers of whole cores, those that ``lstopo -l`` shows as ``Core L#`` (gres.conf(5)). It must name all cores of
a socket together (gres.conf(5) of 24.11 and 26.05): slurmctld 24.11.5 drains a node whose "GRES core specification 0-5 doesn't match socket
boundaries". NUMA nodes stand for sockets with ``SlurmdParameters=numa_node_as_socket``, the CPUs of each L3 cache with
``l3cache_as_socket``. Slurm 22.05 lacks the check and takes any cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import container
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.cores import numbered, whole_cores
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options, release
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Card, Recipe, Workload

OPTIONS = frozenset({"slurm_version", "slurm_sockets"})
FILES = {"npu": "/dev/davinci", "gpu": "/dev/nvidia"}
TAKES_ANY_CORES = (22, 5)
"""The newest release that is known to take cores that are not all of a socket."""


@dataclass(frozen=True)
class Node:
    """A host as Slurm sees it: CPUs by core in Slurm's order, the numbers of those cores by socket, and what stands for a socket."""

    cores: Sequence[Sequence[int]]
    sockets: Sequence[Sequence[int]]
    named: str = "NUMA node"
    parameter: str = "numa_node_as_socket"

    def cpus(self, numbers: Iterable[int]) -> set[int]:
        return {cpu for number in numbers for cpu in self.cores[number]}


def recipe(workload: Workload, options: Options) -> Recipe:
    if not workload.topology:
        raise ValueError(f"{workload.title}: Slurm counts whole cores, and CPUs are all that a plan has; give topology")
    if not workload.cards:
        raise ValueError(f"{workload.title} names no NPU, and gres.conf has a line for each; give npus")
    node = _by_cache(workload) if options.slurm_sockets == "l3" else _by_node(workload)
    exact = release(options.slurm_version)[:2] <= TAKES_ANY_CORES
    prefix = f"NodeName={options.name} " if options.name else ""
    lines, split, shared = [], set(), []
    for card in workload.cards:
        pool = set(expand(card.pool))
        if exact:
            numbers = _inside(workload, card, node)
            split |= pool - node.cpus(numbers)
        else:
            numbers = [number for socket in node.sockets if pool & node.cpus(socket) for number in socket]
            if others := node.cpus(numbers) - pool:
                shared.append(f"{workload.kind.upper()} {card.number} with CPUs {compress(others)}")
        lines.append(f"{prefix}Name={workload.kind} File={FILES[workload.kind]}{card.number} Cores={compress(numbers)}\n")
    notes = [] if exact else [_line_of_node(workload, node, options.name)]
    notes.append(
        "Compare with Core L# of lstopo -l on the host. A job that must have no other cores asks for --gres-flags=enforce-binding."
    )
    if workload.irq:
        busy = whole_cores(workload.topology, expand(workload.irq))
        in_order = (cpu for core in node.cores for cpu in core)
        listed = compress(number for number, cpu in enumerate(in_order) if cpu in busy)
        notes.append(f"CpuSpecList={listed} of the node in slurm.conf keeps jobs off the cores that take interrupts, in numbers of Slurm.")
    if shared:
        notes.append(
            f"Slurm takes whole {node.named}s only: {'; '.join(shared)} besides its own. Which of them a job gets, Slurm decides, unless "
            "a TaskProlog binds it to the CPUs of its NPU (docs/workloads.md has one)."
        )
    if split:
        notes.append(f"CPUs {compress(split)} are left out: other threads of their cores are not in the pool.")
    return Recipe("".join(lines), [*notes, *container.unsure(workload)], starts=False)


def _by_node(workload: Workload) -> Node:
    cores = numbered(workload.topology)
    number_of = {cpu: number for number, core in enumerate(cores) for cpu in core}
    by_numa = [sorted({number_of[cpu] for cpu in expand(numa["cpus"])}) for numa in workload.topology.get("numa") or ()]
    return Node(cores, [numbers for numbers in by_numa if numbers] or [range(len(cores))])


def _by_cache(workload: Workload) -> Node:
    cores = numbered(workload.topology)
    place = {cpu: number for number, core in enumerate(cores) for cpu in core}
    caches = [expand(cache) for cache in workload.topology["cpus"].get("caches") or ()]
    if set(place) != {cpu for cache in caches for cpu in cache}:
        raise ValueError(f"{workload.title}: the L3 caches of the host are not known for all of its CPUs; leave slurm_sockets out")
    in_order = sorted(sorted({place[cpu] for cpu in cache}) for cache in caches)
    sockets, first = [], 0
    for numbers in in_order:
        sockets.append(range(first, first + len(numbers)))
        first += len(numbers)
    return Node([cores[number] for numbers in in_order for number in numbers], sockets, "L3 cache", "l3cache_as_socket")


def _inside(workload: Workload, card: Card, node: Node) -> list[int]:
    """Return the numbers of the cores that lie in the pool with all of their threads."""
    pool = set(expand(card.pool))
    whole = [number for number, core in enumerate(node.cores) if pool.issuperset(core)]
    if not whole:
        raise ValueError(
            f"{workload.title}: CPUs {card.pool} have no whole core, and Slurm counts whole cores; plan with npu_affinity_smt: cores"
        )
    return whole


def _line_of_node(workload: Workload, node: Node, name: str) -> str:
    cores, threads = ({len(part) for part in parts} for parts in (node.sockets, node.cores))
    for count, word, key in (
        (cores, f"{node.named}s with {{}} cores", "CoresPerSocket"),
        (threads, "cores with {} threads", "ThreadsPerCore"),
    ):
        if len(count) > 1:
            found = word.format(" and ".join(map(str, sorted(count))))
            raise ValueError(
                f"{workload.title}: the host has {found}, and a node of Slurm has one {key}; leave Cores= out, and bind the task by a "
                "TaskProlog (docs/workloads.md has one), or let the job start its program with form numactl"
            )
    devices: list[Any] = [npu for npu in workload.topology["npus"] if npu.get("kind", "npu") == workload.kind]
    as_socket = f"SlurmdParameters={node.parameter} and " if len(node.sockets) > 1 else ""
    return (
        f"slurm.conf needs {as_socket}NodeName={name or 'NODE'} CPUs={len(node.cpus(range(len(node.cores))))} Sockets={len(node.sockets)} "
        f"CoresPerSocket={cores.pop()} ThreadsPerCore={threads.pop()} Gres={workload.kind}:{len(devices)}; "
        "without it Slurm drains the node (core specification doesn't match socket boundaries)."
    )
