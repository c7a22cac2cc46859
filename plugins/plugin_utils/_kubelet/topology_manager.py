# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes for a task: which the kubelet's topology manager chooses for CPUs and chips, and which policy admits them.

Sources: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/topologymanager``; volcano-sh/volcano@ed72c7c8,
``pkg/scheduler/plugins/numaaware`` (hints for CPUs). Sets of nodes are bit masks; bit n is the n-th node, not the node with the id n.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SINGLE = "single-numa-node"


class Hint(NamedTuple):
    """``nodes`` None means any. ``preferred`` says that no smaller set would do, were the host empty."""

    nodes: int | None
    preferred: bool


class Ranking:
    """Which of two sets of nodes is better: the narrower, with distances then the closer, then the one with the lower nodes.

    ``distances`` are rows in the order of the bits, for ``prefer-closest-numa-nodes``.
    """

    def __init__(self, distances: Sequence[Sequence[int]] | None = None) -> None:
        self.distances = distances

    def within(self, nodes: int) -> tuple[float, int]:
        """Return the key among sets of the same width."""
        if not self.distances:
            return 0, nodes
        bits = bits_of(nodes)
        return sum(self.distances[node][other] for node in bits for other in bits) / len(bits) ** 2, nodes

    def preferred(self, nodes: int) -> tuple[int, float, int]:
        return nodes.bit_count(), *self.within(nodes)

    def otherwise(self, nodes: int, floor: int) -> tuple[int, int, float, int]:
        """Return the key of sets that are not preferred: as wide as ``floor``, else narrower by as little as possible, else wider."""
        width = nodes.bit_count()
        order = (0, 0) if width == floor else (1, -width) if width < floor else (2, width)
        return *order, *self.within(nodes)


def bits_of(nodes: int) -> list[int]:
    return [bit for bit in range(nodes.bit_length()) if nodes >> bit & 1]


def admits(policy: str, hint: Hint) -> bool:
    return hint.preferred or policy in ("none", "best-effort")


def least_nodes(request: int, counts: Sequence[int]) -> int:
    """Return how many nodes it takes at least; all of them where not even these are enough."""
    found = 0
    for width, count in enumerate(sorted(counts, reverse=True), 1):
        found += count
        if found >= request:
            return width
    return len(counts)


def best_nodes(
    request: int, capacity: Sequence[int], free: Sequence[int], chips: Hint | None = None, ranking: Ranking | None = None
) -> Hint | None:
    """Return what the topology manager makes of the hints for CPUs and for chips, without listing the former. None: too few are free.

    Hints for CPUs are all sets above a threshold. So a set is a result with chips on ``chips.nodes`` exactly when it lies in these
    nodes and has enough CPUs together with all other nodes of the host.
    """
    if not request:
        return chips or Hint(None, True)
    if sum(free) < request:
        return None
    ranking = ranking or Ranking()
    narrowest = least_nodes(request, free)
    possible = narrowest == least_nodes(request, capacity)
    if chips is None or chips.nodes is None:
        best = min(_enough(request, free, narrowest), key=ranking.within)
        return Hint(best, possible and (chips is None or chips.preferred))
    width = chips.nodes.bit_count()
    if possible and chips.preferred and width == narrowest and _free(free, chips.nodes) >= request:
        return chips
    elsewhere = sum(free) - _free(free, chips.nodes)
    results = [nodes for nodes in _subsets(chips.nodes) if _free(free, nodes) + elsewhere >= request]
    return Hint(min(results, key=lambda nodes: ranking.otherwise(nodes, max(narrowest, width))), False)


def _free(free: Sequence[int], nodes: int) -> int:
    return sum(free[node] for node in bits_of(nodes))


def _enough(request: int, free: Sequence[int], width: int) -> Iterator[int]:
    for nodes in combinations(range(len(free)), width):
        if sum([free[node] for node in nodes]) >= request:
            yield sum([1 << node for node in nodes])


def _subsets(nodes: int) -> Iterator[int]:
    subset = nodes
    while subset:
        yield subset
        subset = subset - 1 & nodes
