# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose memory a NUMA node is: a socket's, a GPU's, or nobody's.

Memory without CPUs is HBM or CXL memory of a socket, or the memory of a GPU that the CPU can address. The driver tells of the latter;
firmware tells distances only: 13 to own HBM (Xeon Max), 80 from a socket to its GPUs (GB200, GH200), 80 from every socket to every GPU
(AC922, where they tell nothing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .cpulist import expand

if TYPE_CHECKING:
    from .documents import Node, Npu, Owner, Topology

REMOTE = 20
"""The kernel's distance to the memory of another socket, where firmware tells none (Linux include/linux/topology.h)."""
FAR = 255
"""The kernel's distance between nodes that cannot reach each other; taken where a distance is not known."""
_OF_GPU = 80
"""The distance from a socket to the memory of its GPUs, on all machines that have such nodes."""


def owners(
    nodes: Sequence[Node], sockets: Iterable[str], of_gpus: Mapping[int, str], gpus: Iterable[Npu]
) -> tuple[dict[int, Owner | None], list[int]]:
    """Return the owner of each node, and the nodes that were given to GPUs by distance and order alone.

    A node with CPUs is of their socket, one without of the nearest: ``{"socket": place in sockets}``, None where several are as near.
    ``nodes`` and ``sockets`` are those of a topology, ``of_gpus`` are the nodes that are known to be memory of GPUs, by PCI function, and
    ``gpus`` those of which it is not known whether their memory is a node, ``{pci, numa}`` in bus order.
    """
    homes = _homes(nodes, list(sockets))
    owner_of: dict[int, Owner | None] = {}
    unknown: dict[int, list[int]] = {}
    for node in nodes:
        number = int(node["id"])
        if number in of_gpus:
            owner_of[number] = {"gpu": of_gpus[number]}
        elif number in homes:
            owner_of[number] = {"socket": homes[number]}
        else:
            least, near = _nearest(node, homes)
            owner_of[number] = {"socket": near[0]} if node.get("memory_mib") != 0 and len(near) == 1 else None
            if node.get("memory_mib") != 0 and _OF_GPU <= least < FAR:
                unknown.setdefault(near[0] if len(near) == 1 else -1, []).append(number)
    guessed = []
    candidates = [(gpu["pci"] or "", homes.get(-1 if gpu["numa"] is None else gpu["numa"])) for gpu in gpus]
    is_last = len(candidates) == 1 == sum(map(len, unknown.values()))
    for socket, members in unknown.items() if candidates else ():
        local = [pci for pci, home in candidates if home == socket or is_last]
        pairs = zip(members, local) if len(local) == len(members) else ()
        owner_of.update({**dict.fromkeys(members), **{number: {"gpu": pci} for number, pci in pairs}})
        guessed += members if len(local) == len(members) else []
    return owner_of, guessed


def _nearest(node: Node, homes: Mapping[int, int]) -> tuple[int, list[int]]:
    """Return the distance from a node to the nearest CPUs, and their sockets."""
    distances = distances_of(node)
    away = {number: distances.get(number, FAR) for number in homes}
    least = min(away.values(), default=FAR)
    return least, sorted({homes[number] for number, distance in away.items() if distance == least})


def distances_of(node: Mapping[str, Any]) -> dict[int, int]:
    """Return the distances from a node by node id: JSON has turned the ids into texts."""
    return {int(other): int(distance) for other, distance in (node.get("distances") or {}).items()}


def _homes(nodes: Iterable[Node], sockets: list[str]) -> dict[int, int]:
    """Return the socket of every node with CPUs. Nodes of which sockets share CPUs are in one; so are, where no socket is known, nodes
    that are nearer than the kernel's limit between near and remote memory."""
    cpus = {int(node["id"]): node for node in nodes if node.get("cpus")}
    if sockets:
        sets = {number: set(expand(node["cpus"])) for number, node in cpus.items()}
        groups = [[number for number in cpus if sets[number] & package] for package in map(set, map(expand, sockets))]
    else:
        near = {number: [other for other, far in distances_of(node).items() if far < REMOTE] for number, node in cpus.items()}
        groups = [[number, *(other for other in near[number] if other in cpus)] for number in cpus]
    homes: dict[int, int] = {}
    for place, group in enumerate(groups):
        joined = {homes[number] for number in group if number in homes}
        lowest = min(joined, default=place)
        homes.update({number: lowest for number in homes if homes[number] in joined})
        homes.update(dict.fromkeys(group, lowest))
    return {number: homes.get(number, len(groups)) for number in cpus}


def of_gpu(topology: Topology) -> dict[int, str]:
    """Return the nodes of a topology that are memory of GPUs, with the PCI functions of these."""
    owned = ((int(node["id"]), node.get("owner") or {}) for node in topology.get("numa") or ())
    return {number: owner["gpu"] for number, owner in owned if "gpu" in owner}


def unclaimed(topology: Topology) -> list[int]:
    """Return the nodes with memory that nothing owns and that are as far from all CPUs as only memory of GPUs is."""
    nodes = topology.get("numa") or ()
    with_cpus = {int(node["id"]) for node in nodes if node.get("cpus")}
    homes = dict.fromkeys(with_cpus, 0)
    return [
        int(node["id"])
        for node in nodes
        if "owner" in node and node["owner"] is None and node.get("memory_mib") != 0 and _OF_GPU <= _nearest(node, homes)[0] < FAR
    ]
