# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the picture of a host is drawn from: its NPUs, the NUMA nodes around them, and a colour for each NPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import Key, keys_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base import documents
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import PlanEntry, Topology

NODES_PER_ROW = 4
PALETTE = (
    # light scheme: main cells, role cells, text on role cells; dark scheme: the same
    ("#fbd88f", "#e69f00", "#000", "#7a4e00", "#e69f00", "#000"),
    ("#93bfe0", "#0072b2", "#fff", "#0a4a75", "#3d9fdb", "#000"),
    ("#cdb89a", "#7a5a2e", "#fff", "#4d3c24", "#b08d5c", "#000"),
    ("#cdeafb", "#56b4e9", "#000", "#2c6382", "#9ad6f7", "#000"),
    ("#f0b48f", "#d55e00", "#000", "#7d2f00", "#e8772a", "#000"),
    ("#e6bfd5", "#cc79a7", "#000", "#693353", "#d98cb8", "#000"),
    ("#faf3a0", "#e8d700", "#000", "#6d680d", "#f0e442", "#000"),
    ("#93d4be", "#009e73", "#000", "#00523c", "#19b88c", "#000"),
)
"""The colours of Okabe and Ito (https://jfly.uni-koeln.de/color/) with brown for their black. Consecutive ones differ with any kind of
colour vision."""
LOOKS = 2 * len(PALETTE)
"""How many NPUs can be told apart: those from the second half on are hollow, outlined in the colour of the first half."""


@dataclass(frozen=True)
class Npu:
    """An NPU or GPU with its pool, "" where no plan has one.

    ``badge`` is what its CPUs are marked with, ``node`` the NUMA node it is drawn at, ``facts`` the topology's entry, None for a lost one.
    """

    label: str
    badge: str
    name: str
    pci: str
    node: int | None
    pool: str
    facts: documents.Npu | None


class Node(TypedDict):
    """A NUMA node, or what belongs to none: the indexes of the NPUs drawn at it, and its cores by the cpulist of their cache, "" where that
    is not known (``groups``)."""

    id: int | None
    label: str
    mib: int | None
    npus: list[int]
    groups: list[tuple[str, list[list[int]]]]


def cpus_of(node: Node) -> Iterator[int]:
    return (cpu for _cache, cores in node["groups"] for core in cores for cpu in core)


def npus_of(topology: Topology, entries: Mapping[Key, PlanEntry]) -> Iterator[Npu]:
    """Yield the NPUs of the topology with their entries of a plan, then those that only the plan has: they are lost, and drawn at the node
    of their memory."""
    here = dict(zip(keys_of(topology["npus"]), topology["npus"], strict=True))
    mixed = len({key[0] for key in here}) > 1

    for key in dict.fromkeys([*here, *entries]):
        facts, entry = here.get(key), entries.get(key)
        shown: documents.Npu | PlanEntry = facts or entries[key]
        badge = f"{'' if facts else '×'}{key[0][0].upper() if mixed else ''}{shown['id']}"
        mems = entry.get("mems") if entry else None
        node = facts.get("numa") if facts else expand(mems)[0] if mems else None
        name, pci, pool = (str(value or "") for value in (shown.get("name"), shown.get("pci"), entry and entry.get("pool")))
        yield Npu(f"{key[0].upper()} {shown['id']}{'' if facts else ' (lost)'}", badge, name, pci, node, pool, facts)


def nodes_of(topology: Topology, npus: Sequence[Npu]) -> Iterator[Node]:
    """Yield the NUMA nodes that have CPUs or NPUs, then what belongs to no node (the kernel hides an offline CPU's)."""
    core_of = {cpu: core for core in topology["cpus"].get("siblings") or () for cpu in expand(core, "cpus.siblings of the topology")}
    cache_of = {cpu: cache for cache in topology["cpus"].get("caches") or () for cpu in expand(cache, "cpus.caches of the topology")}

    def groups(cpus: Iterable[int]) -> list[tuple[str, list[list[int]]]]:
        cores: dict[str, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(core_of.get(cpu, str(cpu)), []).append(cpu)
        caches: dict[str, list[list[int]]] = {}
        for core in cores.values():
            caches.setdefault(cache_of.get(core[0], ""), []).append(core)
        return list(caches.items())

    rest = set(expand(topology["cpus"]["online"], "cpus.online of the topology"))
    rest |= set(expand(topology["cpus"].get("offline") or "", "cpus.offline of the topology"))
    without_node = set(range(len(npus)))
    for node in topology.get("numa") or ():
        cpus = rest.intersection(expand(node["cpus"], f"cpus of NUMA node {node['id']}"))
        attached = [index for index in sorted(without_node) if npus[index].node == node["id"]]
        rest -= cpus
        without_node.difference_update(attached)
        if cpus or attached:
            number, label, mib = node["id"], f"NUMA node {node['id']}", node.get("memory_mib")
            yield {"id": number, "label": label, "mib": mib, "npus": attached, "groups": groups(cpus)}
    if rest or without_node:
        yield {"id": None, "label": "no NUMA node known", "mib": None, "npus": sorted(without_node), "groups": groups(rest)}


def colours_of(npus: Sequence[Npu], nodes: Sequence[Node]) -> list[int | None]:
    """Return a number below LOOKS for every NPU with a pool, None for a lost one; those with CPUs on the same or on touching nodes differ.

    Where there are too few for that, the look is taken that is rarest near the NPU.
    """
    pools: dict[int, list[int]] = {}
    for index, npu in enumerate(npus):
        for cpu in expand(npu.pool, f"pool of {npu.label}"):
            pools.setdefault(cpu, []).append(index)
    per_row = -(-len(nodes) // max(1, -(-len(nodes) // NODES_PER_ROW)))
    here = [list(dict.fromkeys(index for cpu in cpus_of(node) for index in pools.get(cpu, ()))) for node in nodes]
    colours: dict[int, int] = {}
    for index in dict.fromkeys([*chain.from_iterable(here), *range(len(npus))]):
        homes = [number for number, members in enumerate(here) if index in members]
        touched = {number + step for number in homes for step in (0, 1, -1, per_row, -per_row)}
        mates = chain.from_iterable(members for number, members in enumerate(here) if number in touched)
        near = Counter(colours[mate] for mate in mates if mate in colours)
        used = Counter(colours.values())
        hues = Counter({hue: near[hue] + near[hue + len(PALETTE)] for hue in range(len(PALETTE))})
        colours[index] = min(range(LOOKS), key=lambda look: (near[look], used[look], hues[look % len(PALETTE)], look))
    return [colours[index] if npu.pool and npu.facts is not None else None for index, npu in enumerate(npus)]
