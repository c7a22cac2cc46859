# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs a container gets that is resized while it runs: a branch of the kubelet that is no release (esotsal/kubernetes at 3892f459).

The collection does not resize; the cases of conformance have it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import combinations

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import CACHES, NODES, Choice, Units, _balance, _deviation, _Parts


class Resizing(Choice):
    """A choice in which the container has ``kept`` already: its units come first, and one counts as whole when what is not free is its."""

    def __init__(self, units: Units, available: int, count: int, kept: int) -> None:
        super().__init__(units, available | kept, count)
        self.take(kept)

    def _sorted(self, level: str, within: int) -> list[int]:
        units, own = self.units.of[level], self.taken & within
        return sorted(super()._sorted(level, within), key=lambda number: not units[number] & own)

    def whole(self, level: str) -> list[int]:
        units = self.units.of[level]
        return [number for number in self.order(level) if not units[number] & ~(self.free | self.taken)]

    def take_caches(self) -> None:
        for number in self.order(CACHES):
            self.take_whole(CACHES)
            if self.needed:
                self._take_part_of_cache(number)


def resized(
    units: Units,
    available: int,
    count: int,
    reusable: int,
    must_keep: int = 0,
    group: int | None = None,
    spread: bool = False,
    by_cache: bool = False,
) -> int:
    """Return the CPUs of a container that has ``reusable`` and now asks for ``count``; with ``group`` distributed, else packed.

    Growing keeps all it has, shrinking keeps ``must_keep`` and some of the rest. ``ValueError``: too few, or more to keep than it has
    or asks for.
    """
    if reusable and must_keep & ~reusable:
        raise ValueError(f"requested CPUs to be retained {text_of(must_keep)} are not a subset of reusable CPUs {text_of(reusable)}")
    shrinks = count < reusable.bit_count()
    kept = must_keep if shrinks else reusable
    if kept.bit_count() > count:
        raise ValueError(f"requested CPUs to be retained {text_of(kept)} are more than the {count} asked for")
    available = reusable if shrinks else available | reusable
    chosen = 0
    if group and not count % group:
        chosen = _distribute(Resizing(units, available, count, kept), group, spread)
    return chosen or Resizing(units, available, count, kept).pack(spread, by_cache and group is None)


def _distribute(choice: Resizing, group: int, spread: bool) -> int:
    """Return the CPUs in equal parts of nodes, 0 where no combination of nodes can give them."""
    if choice.needed <= 0:
        return choice.taken
    nodes = choice.units.of[NODES]
    held = {node: (cpus & choice.taken).bit_count() for node, cpus in nodes.items()}
    free = {node: (nodes[node] & choice.free).bit_count() for node in choice.order(NODES)}
    holders = {node for node, cpus in held.items() if cpus}
    groups = math.ceil(choice.needed / group)
    per_node = math.ceil(math.ceil(choice.units.cpus.bit_count() / group) / len(nodes))
    for size in range(max(math.ceil(groups / per_node), len(holders)), min(groups, len(free)) + 1):
        best: _Parts | None = None
        for combination in combinations(free, size):
            if best and best.balance == 0:
                break
            found = _parts(combination, held, free, choice.needed, group) if holders <= set(combination) else None
            if found and (best is None or found.balance < best.balance):
                best = found
        if best:
            return _give(choice, best, group, spread)
    return 0


def _parts(combination: Collection[int], held: Mapping[int, int], free: Mapping[int, int], needed: int, group: int) -> _Parts | None:
    """Return what each node of a combination gives, None where it cannot give enough in groups."""
    count = needed + sum(held.values())
    each = count // len(combination) // group * group
    if sum(free[node] for node in combination) < needed or sum((free[node] + held[node]) // group for node in combination) * group < count:
        return None
    if any(free[node] + held[node] < each or held[node] > each + group for node in combination):
        return None
    due = {node: max(each - held[node], 0) for node in combination}
    left = {node: cpus - due.get(node, 0) for node, cpus in free.items()}
    left.update({node: 0 for node in combination if held[node] > each})
    remainder = needed - sum(due.values())
    if remainder < 0:
        return None
    if remainder == 0:
        return _Parts(_deviation(left.values()), due, (), 0)
    best: _Parts | None = None
    candidates = [node for node in combination if left[node] >= group]
    for size in range(len(candidates), 0, -1):
        for receivers in combinations(candidates, size):
            balance = _balance(left, receivers, remainder, group)
            if balance is not None and (best is None or balance < best.balance):
                best = _Parts(balance, due, receivers, remainder)
    return best


def _give(choice: Resizing, parts: _Parts, group: int, spread: bool) -> int:
    """Take the parts from their nodes, each packed by itself."""

    def take(node: int, more: int) -> None:
        inside = choice.units.of[NODES][node]
        own = choice.taken & inside
        packing = Resizing(choice.units, choice.free & inside, more + own.bit_count(), own)
        choice.take(packing.pack(spread) & ~choice.taken)

    for node, more in parts.due.items():
        take(node, more)
    remainder = parts.remainder
    while remainder:
        for node in parts.receivers:
            if remainder and (choice.units.of[NODES][node] & choice.free).bit_count() >= group:
                take(node, group)
                remainder -= group
    return choice.taken
