# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes for a task: how the kubelet's topology manager merges the hints for CPUs and chips, and which policy admits the result.

Sources: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/topologymanager``; volcano-sh/volcano@ed72c7c8,
``pkg/scheduler/plugins/numaaware`` (hints for CPUs). Sets of nodes are bit masks; bit n is the n-th node, not the node with the id n. Where
the kernel names no sockets, every NUMA node counts as one; CPUs of no known cache share one with their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cpus_of, mask, mask_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import Units

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

BEST_EFFORT, SINGLE = "best-effort", "single-numa-node"
POLICIES = ("none", BEST_EFFORT, "restricted", SINGLE)


Distances = Sequence[Sequence[int]]


class Hint(NamedTuple):
    """``nodes`` None means any. ``preferred`` says that no smaller set would do, were the host empty."""

    nodes: int | None
    preferred: bool


def admits(policy: str, hint: Hint) -> bool:
    return hint.preferred or policy in ("none", "best-effort")


def least_nodes(request: int, counts: Sequence[int]) -> int:
    """Return how many nodes it takes at least; all of them where not even these are enough."""
    available = 0
    for width, count in enumerate(sorted(counts, reverse=True), 1):
        available += count
        if available >= request:
            return width
    return len(counts)


def best_nodes(
    request: int, capacity: Sequence[int], free: Sequence[int], policy: str, chips: Hint | None = None, distances: Distances | None = None
) -> Hint:
    """Return what the topology manager makes of the hints for CPUs and for chips. Without either, any node will do."""
    if not request and chips is None:
        return Hint(None, True)
    cpus = _cpu_hints(request, capacity, free, chips.nodes if chips else None) if request else None
    return merge([None if chips is None else [chips], cpus], (1 << len(capacity)) - 1, policy, distances)


def merge(resources: Iterable[Sequence[Hint] | None], everything: int, policy: str, distances: Distances | None = None) -> Hint:
    """Return the best hint over all resources; ``everything`` are all nodes of the host.

    None is a resource for which nobody has an opinion, an empty list one that cannot be placed. ``distances`` are rows in the order of
    the bits, for ``prefer-closest-numa-nodes``.
    """
    if policy == "none":
        return Hint(None, True)
    listed = [[Hint(None, True)] if hints is None else hints or [Hint(None, False)] for hints in resources]
    if policy == SINGLE:
        listed = [[hint for hint in hints if hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)] for hints in listed]
    best = _best(listed, everything, distances)
    return Hint(None, best.preferred) if policy == SINGLE and best.nodes == everything else best


def _best(resources: Sequence[Sequence[Hint]], everything: int, distances: Distances | None) -> Hint:
    """Return the narrowest set of nodes, with distances the closest of these, then that with the lowest nodes.

    Where none is preferred, it is as wide as the widest of the narrowest hints, else narrower by as little as possible, else wider.
    """

    def within(nodes: int) -> tuple[float, int]:
        bits = cpus_of(nodes)
        return sum(distances[node][other] for node in bits for other in bits) / len(bits) ** 2 if distances else 0, nodes

    merged: set[tuple[int, int | None, bool]] = {(everything, None, True)}
    for hints in resources:
        merged = {_added(state, hint) for state in merged for hint in hints}
    preferred = [nodes for nodes, _first, good in merged if nodes and good]
    if preferred:
        return Hint(min(preferred, key=lambda nodes: (nodes.bit_count(), within(nodes))), True)
    widths = [[hint.nodes.bit_count() for hint in hints if hint.nodes is not None] for hints in resources]
    floor = max((min(counts) for counts in widths if counts), default=0)
    others = [(nodes.bit_count() - floor, nodes) for nodes, _first, _good in merged if nodes]
    best = min(others, key=lambda other: (other[0] > 0, abs(other[0]), within(other[1])), default=(0, everything))
    return Hint(best[1], False)


def _added(state: tuple[int, int | None, bool], hint: Hint) -> tuple[int, int | None, bool]:
    """Return nodes in common, the set that was named first, and whether all are preferred and named the same set."""
    nodes, first, good = state
    if hint.nodes is None:
        return nodes, first, good and hint.preferred
    return nodes & hint.nodes, hint.nodes if first is None else first, good and hint.preferred and first in (None, hint.nodes)


def _cpu_hints(request: int, capacity: Sequence[int], free: Sequence[int], chips: int | None) -> list[Hint]:
    """Return those hints for CPUs that decide what is merged with a hint for chips on ``chips``; None: there is none.

    All hints are the sets of nodes with enough free CPUs, of which a host of 16 nodes has 65,535. Without chips, the narrowest win. With
    chips, a set counts for what it has in common with theirs, so one set for each subset of theirs is enough, with all other nodes;
    besides theirs, which can be preferred, and one of the narrowest, whose width counts.
    """
    width = least_nodes(request, free)
    if chips is None:
        sets = set(map(mask_of, combinations(range(len(free)), width)))
    else:
        sets = {chips, mask_of(sorted(range(len(free)), key=lambda node: -free[node])[:width])}
        subset = chips
        while subset:
            sets.add(subset | (1 << len(free)) - 1 & ~chips)
            subset = subset - 1 & chips
    least = least_nodes(request, capacity)
    return [Hint(nodes, nodes.bit_count() == least) for nodes in sets if sum(free[node] for node in cpus_of(nodes)) >= request]


def units_of(topology: Topology) -> Units:
    """Return the units of a topology; those of the last models of machines are kept. ``ValueError``: they do not fit together."""
    cpus = topology["cpus"]
    nodes = tuple((int(node["id"]), str(node.get("cpus") or "")) for node in topology.get("numa") or ())
    sets = (tuple(texts or ()) for texts in (cpus.get("sockets"), cpus.get("caches"), cpus.get("siblings")))
    return _of_texts(cpus["online"], nodes, *sets)


@lru_cache(maxsize=64)
def _of_texts(
    online: str, nodes: tuple[tuple[int, str], ...], sockets: tuple[str, ...], caches: tuple[str, ...], siblings: tuple[str, ...]
) -> Units:
    return units(
        mask(online, "cpus.online of the topology"),
        {number: mask(cpus, f"cpus of NUMA node {number}") for number, cpus in nodes},
        *([mask(text, "cpus of the topology") for text in texts] for texts in (sockets, caches, siblings)),
    )


def units(online: int, nodes: Mapping[int, int], sockets: Iterable[int], caches: Iterable[int], cores: Iterable[int]) -> Units:
    """Return the units of sets of CPUs; only online CPUs count. Sockets and caches are numbered by their lowest CPU."""
    in_nodes = {number: cpus & online for number, cpus in nodes.items()}
    if rest := online & ~union(in_nodes.values()):
        in_nodes[NO_NODE] = rest
    packages = {number: cpus & online for number, cpus in enumerate(sorted(sockets, key=_lowest))}
    if union(packages.values()) != online:
        packages = dict(in_nodes)
    whole = [cpus & online for cpus in caches if cpus & online]
    uncovered = online & ~union(whole)
    whole += [cpus & uncovered for cpus in in_nodes.values() if cpus & uncovered]
    threads = {_lowest(core & online): core & online for core in cores if core & online}
    threads.update((cpu, 1 << cpu) for cpu in cpus_of(online & ~union(threads.values())))
    return Units(in_nodes, packages, dict(enumerate(sorted(whole, key=_lowest))), threads)


def _lowest(cpus: int) -> int:
    return (cpus & -cpus).bit_length() - 1
