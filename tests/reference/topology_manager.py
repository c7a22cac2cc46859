# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the kubelet's topology manager merges the hints of all resources, in full: what the short cut of the collection is compared with.

Sources: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/topologymanager``; volcano-sh/volcano@ed72c7c8,
``pkg/scheduler/plugins/numaaware`` (hints for CPUs).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import SINGLE, Hint, Ranking, least_nodes

Provider = Mapping[str, Sequence[Hint] | None] | None
"""Hints by resource. None and an empty mapping have no opinion, and neither has None of a resource; an empty list is impossible."""


def merge(providers: Iterable[Provider], everything: int, policy: str, ranking: Ranking | None = None) -> Hint:
    """Return the best hint over all resources; ``everything`` are all nodes of the host."""
    if policy == "none":
        return Hint(None, True)
    ranking = ranking or Ranking()
    resources = list(_resources(providers))
    if policy == SINGLE:
        resources = [
            [hint for hint in hints if hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)] for hints in resources
        ]
    best = _best(resources, everything, ranking)
    if policy == SINGLE and best.nodes == everything:
        return Hint(None, best.preferred)
    return best


def _resources(providers: Iterable[Provider]) -> Iterator[Sequence[Hint]]:
    for provider in providers:
        if not provider:
            yield [Hint(None, True)]
        for hints in (provider or {}).values():
            yield [Hint(None, True)] if hints is None else hints or [Hint(None, False)]


def _best(resources: Sequence[Sequence[Hint]], everything: int, ranking: Ranking) -> Hint:
    merged: set[tuple[int, int | None, bool]] = {(everything, None, True)}
    for hints in resources:
        merged = {_added(state, hint) for state in merged for hint in hints}
    preferred = [nodes for nodes, _named, good in merged if nodes and good]
    if preferred:
        return Hint(min(preferred, key=ranking.preferred), True)
    widths = [[hint.nodes.bit_count() for hint in hints if hint.nodes is not None] for hints in resources]
    floor = max((min(named) for named in widths if named), default=0)
    others = [nodes for nodes, _named, _good in merged if nodes]
    return Hint(min(others, key=lambda nodes: ranking.otherwise(nodes, floor), default=everything), False)


def _added(state: tuple[int, int | None, bool], hint: Hint) -> tuple[int, int | None, bool]:
    """Return nodes in common, the set that was named first, and whether all are preferred and named the same set."""
    nodes, named, good = state
    if hint.nodes is None:
        return nodes, named, good and hint.preferred
    return nodes & hint.nodes, hint.nodes if named is None else named, good and hint.preferred and named in (None, hint.nodes)


def cpu_hints(request: int, capacity: Sequence[int], free: Sequence[int]) -> list[Hint]:
    """Return every set of nodes with enough free CPUs; preferred are those as wide as the CPUs of empty nodes allow."""
    least = least_nodes(request, capacity)
    hints = []
    for width in range(1, len(capacity) + 1):
        for nodes in combinations(range(len(capacity)), width):
            if sum(free[node] for node in nodes) >= request:
                hints.append(Hint(sum(1 << node for node in nodes), width == least))
    return hints
