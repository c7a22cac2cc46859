# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the picture of a host is drawn from: its NPUs, the NUMA nodes around them, and a colour for each NPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import Key, keys_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

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
    facts: Mapping[str, Any] | None


Node = dict[str, Any]
"""A NUMA node, or what belongs to none (``id`` None): its ``label``, its memory (``mib``, None if not known), the indexes of the NPUs drawn
at it, and its cores by the cpulist of their cache, "" where that is not known (``groups``)."""


def cpus_of(node: Node) -> Iterator[int]:
    return (cpu for _cache, cores in node["groups"] for core in cores for cpu in core)


def npus_of(topology: Topology, entries: Mapping[Key, Mapping[str, Any]]) -> Iterator[Npu]:
    """Yield the NPUs of the topology with their entries of a plan, then those that only the plan has: they are lost, and drawn at the node
    of their memory."""
    here = dict(zip(keys_of(topology["npus"]), topology["npus"], strict=True))
    mixed = len({key[0] for key in here}) > 1

    def npu(key: Key, what: Mapping[str, Any], node: int | None, facts: Mapping[str, Any] | None) -> Npu:
        label, lost = f"{key[0].upper()} {what['id']}", facts is None
        badge = f"{'×' if lost else ''}{key[0][0].upper() if mixed else ''}{what['id']}"
        name, pci, pool = (str(value or "") for value in (what.get("name"), what.get("pci"), entries.get(key, {}).get("pool")))
        return Npu(f"{label} (lost)" if lost else label, badge, name, pci, node, pool, facts)

    for key, facts in here.items():
        yield npu(key, facts, facts.get("numa"), facts)
    for key, entry in entries.items():
        if key not in here:
            yield npu(key, entry, expand(entry["mems"])[0] if entry.get("mems") else None, None)


def nodes_of(topology: Topology, npus: Sequence[Npu]) -> Iterator[Node]:
    """Yield the NUMA nodes that have CPUs or NPUs, then what belongs to no node (the kernel hides an offline CPU's)."""
    core_of = {cpu: core for core in topology["cpus"].get("siblings") or () for cpu in expand(core, "cpus.siblings of the topology")}
    cache_of = {cpu: cache for cache in topology["cpus"].get("caches") or () for cpu in expand(cache, "cpus.caches of the topology")}

    def groups(cpus: Iterable[int]) -> list[list[Any]]:
        cores: dict[str, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(core_of.get(cpu, str(cpu)), []).append(cpu)
        caches: dict[str, list[list[int]]] = {}
        for core in cores.values():
            caches.setdefault(cache_of.get(core[0], ""), []).append(core)
        return [[cache, of_cache] for cache, of_cache in caches.items()]

    def made(number: int | None, label: str, mib: int | None, attached: list[int], cpus: Iterable[int]) -> Node:
        return {"id": number, "label": label, "mib": mib, "npus": attached, "groups": groups(cpus)}

    rest = set(expand(topology["cpus"]["online"], "cpus.online of the topology"))
    rest |= set(expand(topology["cpus"].get("offline") or "", "cpus.offline of the topology"))
    without_node = set(range(len(npus)))
    for node in topology.get("numa") or ():
        cpus = rest.intersection(expand(node["cpus"], f"cpus of NUMA node {node['id']}"))
        attached = [index for index in sorted(without_node) if npus[index].node == node["id"]]
        rest -= cpus
        without_node.difference_update(attached)
        if cpus or attached:
            yield made(node["id"], f"NUMA node {node['id']}", node.get("memory_mib"), attached, cpus)
    if rest or without_node:
        yield made(None, "no NUMA node known", None, sorted(without_node), rest)


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
