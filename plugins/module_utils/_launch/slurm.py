# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm calls the CPUs of a host, for lines of gres.conf, one for each NPU, and the line of slurm.conf that fits them.

``Cores=`` takes Slurm's own numbers of whole cores, those that ``lstopo -l`` shows as ``Core L#`` (gres.conf(5)). It must name all cores of
a socket together (gres.conf(5) of 24.11 and 26.05): slurmctld 24.11.5 drains a node whose "GRES core specification 0-5 doesn't match socket
boundaries". NUMA nodes stand for sockets with ``SlurmdParameters=numa_node_as_socket``, the CPUs of each L3 cache with
``l3cache_as_socket``. Slurm 22.05 lacks the check and takes any cores.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Iterable, NamedTuple, Sequence

from .._base.cpulist import compress, expand
from .facts import Facts, version_of

if TYPE_CHECKING:
    from .._base.documents import Topology

TAKES_ANY_CORES = (22, 5)
"""The newest version that is known to take cores that are not all of a socket."""


class Node(NamedTuple):
    """A host as Slurm sees it: CPUs by core in Slurm's order, the numbers of those cores by socket, and what stands for a socket."""

    cores: Sequence[Sequence[int]]
    sockets: Sequence[Sequence[int]]
    socket: str = "NUMA node"
    parameter: str = "numa_node_as_socket"

    def cpus(self, numbers: Iterable[int]) -> set[int]:
        return {cpu for number in numbers for cpu in self.cores[number]}


class SlurmFacts(Facts):
    @property
    def host(self) -> Node:
        topology, cores = self.workload.topology, numbered(self.workload.topology)
        number_of = {cpu: number for number, core in enumerate(cores) for cpu in core}
        if self.options["slurm_sockets"] != "l3":
            by_numa = [sorted({number_of[cpu] for cpu in expand(numa["cpus"])}) for numa in topology.get("numa") or ()]
            return Node(cores, [numbers for numbers in by_numa if numbers] or [range(len(cores))])
        caches = [expand(cache) for cache in topology["cpus"].get("caches") or ()]
        if set(number_of) != {cpu for cache in caches for cpu in cache}:
            title = self.workload.title
            raise ValueError(f"{title}: the L3 caches of the host are not known for all of its CPUs; leave slurm_sockets out")
        in_order = sorted(sorted({number_of[cpu] for cpu in cache}) for cache in caches)
        starts = [sum(map(len, in_order[:number])) for number in range(len(in_order))]
        sockets = [range(start, start + len(numbers)) for start, numbers in zip(starts, in_order)]
        return Node([cores[number] for numbers in in_order for number in numbers], sockets, "L3 cache", "l3cache_as_socket")

    @property
    def exact(self) -> bool:
        """Whether this version takes the cores of the pool, which need not be whole sockets."""
        return version_of(self.options["slurm_version"])[:2] <= TAKES_ANY_CORES

    @property
    def lines(self) -> list[SimpleNamespace]:
        """A line for each NPU, with the CPUs of its cores outside its pool (``others``), and those of its pool outside (``left_out``)."""
        rows, node = [], self["host"]
        for card in self.workload.cards:
            pool = set(expand(card.pool))
            if self["exact"]:
                numbers = [number for number, core in enumerate(node.cores) if pool.issuperset(core)]
            else:
                numbers = [number for socket in node.sockets if pool & node.cpus(socket) for number in socket]
            if not numbers:
                raise ValueError(
                    f"{self.workload.title}: CPUs {card.pool} have no whole core, and Slurm counts whole cores; plan with "
                    "npu_affinity_smt: cores"
                )
            cpus, file = node.cpus(numbers), "/dev/%s%d" % ("nvidia" if self["is_gpu"] else "davinci", card.number)
            rows.append(SimpleNamespace(number=card.number, file=file, cores=compress(numbers), others=cpus - pool, left_out=pool - cpus))
        return rows

    @property
    def shared(self) -> str:
        kind = self.workload.kind.upper()
        return "; ".join(f"{kind} {line.number} with CPUs {compress(line.others)}" for line in self["lines"] if line.others)

    @property
    def left_out(self) -> str:
        return compress({cpu for line in self["lines"] for cpu in line.left_out})

    @property
    def busy(self) -> str:
        """The CPUs of cores that take interrupts, in the numbers of Slurm."""
        taken = whole_cores(self.workload.topology, expand(self.workload.irq))
        in_order = (cpu for core in self["host"].cores for cpu in core)
        return compress(number for number, cpu in enumerate(in_order) if cpu in taken)

    @property
    def conf(self) -> SimpleNamespace | None:
        """The numbers of the line of slurm.conf, where the version wants whole sockets. Raises ``ValueError`` where no line says them."""
        node: Node = self["host"]
        if self["exact"]:
            return None
        cores, threads = ({len(part) for part in parts} for parts in (node.sockets, node.cores))
        sizes = ((cores, f"{node.socket}s with %s cores", "CoresPerSocket"), (threads, "cores with %s threads", "ThreadsPerCore"))
        for numbers, words, key in sizes:
            if len(numbers) > 1:
                has = words % " and ".join(map(str, sorted(numbers)))
                raise ValueError(
                    f"{self.workload.title}: the host has {has}, and a node of Slurm has one {key}; leave Cores= out, and bind the task by "
                    "a TaskProlog (docs/workloads.md has one), or let the job start its program with form numactl"
                )
        return SimpleNamespace(
            as_socket=f"SlurmdParameters={node.parameter} and " if len(node.sockets) > 1 else "",
            node=self.options["name"] or "NODE",
            socket=node.socket,
            cpus=sum(map(len, node.cores)),
            sockets=len(node.sockets),
            cores=cores.pop(),
            threads=threads.pop(),
            devices=sum(npu.get("kind", "npu") == self.workload.kind for npu in self.workload.topology["npus"]),
        )


def whole_cores(topology: Topology, cpus: Iterable[int]) -> set[int]:
    """Return CPUs with all threads of their cores; without a topology, cores are not known and the CPUs come back as they are."""
    given = set(cpus)
    return given.union(*(core for core in _threads(topology) if given.intersection(core)))


def numbered(topology: Topology) -> list[list[int]]:
    """Return the CPUs of each core, in the order in which hwloc and Slurm number cores: by NUMA node, then by lowest thread."""
    siblings = {cpu: core for core in _threads(topology) for cpu in core}
    cores: list[list[int]] = []
    nodes = [(node["id"], node["cpus"]) for node in topology.get("numa") or ()] or [(0, topology["cpus"]["online"])]
    for _id, cpus in sorted(nodes):
        cores += [siblings.get(cpu, [cpu]) for cpu in sorted(expand(cpus)) if siblings.get(cpu, [cpu])[0] == cpu]
    return cores


def _threads(topology: Topology) -> list[list[int]]:
    return [sorted(expand(core)) for core in (topology.get("cpus") or {}).get("siblings") or ()]
