# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The balloons policy of nri-plugins with one balloon for each card, near its card (``preferCloseToDevices``).

Source: containers/nri-plugins@0705acc824ee3c98f66665a5879bbcafae160c9a, ``cmd/plugins/balloons/policy/cputree.go``, ``ResizeCpus`` and
``sorterAllocate``, and ``pkg/cpuallocator/allocator.go``, ``allocate``, restated as far as it decides between NUMA nodes and cores.

1. The balloons come one after the other and ask for the same number of whole cores. If exactly as many are free, they are taken.
2. Only CPUs of the card's NUMA node count where enough of them are free, else all free ones.
3. Of the tree of packages, NUMA nodes, cores and threads, the lowest part with enough free CPUs is taken. Of several the one in whose
   package, then in which itself, most CPUs are the balloon's and fewest are free; with ``allocatorTopologyBalancing`` most.
4. Inside that part idle packages come first, then idle cores by number, then threads.

Between 3 and 4 the allocator looks at caches that are smaller than a package. That is not restated: it chooses between cores of one NUMA
node, which changes no measure. Where the part has several nodes, the result is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import CACHES, CORES, NODES, SOCKETS, Units
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import NotExpressed, Rule
from tests.compare.machines import Subject


class Part(NamedTuple):
    """A part of the tree: its name, its CPUs, and those of all parts around it, the host first and itself last."""

    name: str
    cpus: int
    path: tuple[int, ...]


def tree(cpus: int, levels: Sequence[tuple[str, Mapping[int, int]]]) -> list[Part]:
    """Return all parts of a host. ``levels`` are its units by number from the outside, each with the letters that their names begin with.

    As in the source, names are compared as texts, in which 10 comes before 2.
    """
    return list(_inside(Part("", cpus, (cpus,)), [*levels, ("t", {cpu: 1 << cpu for cpu in cpus_of(cpus)})]))


def _inside(part: Part, levels: Sequence[tuple[str, Mapping[int, int]]]) -> Iterator[Part]:
    yield part
    if levels:
        letters, units = levels[0]
        for number, unit in units.items():
            if cpus := unit & part.cpus:
                yield from _inside(Part(f"{part.name}{letters}{number}", cpus, (*part.path, cpus)), levels[1:])


def add_from(parts: list[Part], current: int, free: int, count: int, near: tuple[int, ...] = (), balancing: bool = False) -> int:
    """Return the free CPUs from which a balloon with the current CPUs gets ``count`` more. ``ValueError``: too few are free."""
    if count == 0:
        return 0
    if free.bit_count() < count:
        raise ValueError(f"not enough free CPUs ({free.bit_count()}) for {count} more")
    if free.bit_count() == count:
        return free
    for hint in near:
        if (free & hint).bit_count() >= count:
            free &= hint

    def order(part: Part) -> tuple[int, list[int], list[int], str]:
        owned = [-(cpus & current).bit_count() for cpus in part.path]
        room = [(cpus & free).bit_count() * (-1 if balancing else 1) for cpus in part.path]
        return -len(part.path), owned, room, part.name

    return min((part for part in parts if (part.cpus & free).bit_count() >= count), key=order).cpus & free


def take(units: Units, part: int, count: int) -> int:
    """Return ``count`` CPUs of a part of the tree."""
    if part.bit_count() == count:
        return part
    several = sum(bool(node & part) for node in units.of[NODES].values()) > 1
    whole = [*units.of[SOCKETS].values(), *units.of[CORES].values()]
    if several and any(cache not in whole for cache in units.of[CACHES].values()):
        raise NotExpressed("the CPUs come from several NUMA nodes, by caches")
    taken = 0
    for unit in (*whole, *(1 << cpu for cpu in cpus_of(part))):
        if not unit & ~part and not unit & taken and taken.bit_count() + unit.bit_count() <= count:
            taken |= unit
    return taken


def divide(subject: Subject) -> Mapping[Card, int]:
    if not subject.share:
        raise ValueError(f"{len(subject.cards)} balloons, and {subject.machine.usable.bit_count()} CPUs: not a whole core for each")
    free = subject.machine.usable
    units = subject.units.of
    parts = tree(subject.units.cpus, [("p", units[SOCKETS]), ("n", units[NODES]), ("cpu", units[CORES])])
    pools = {}
    for card in subject.cards:
        near = subject.near(card)
        pools[card] = take(subject.units, add_from(parts, 0, free, subject.share, (near,) if near else ()), subject.share)
        free &= ~pools[card]
    return pools


RULES = (Rule("nri-plugins, balloons", divide),)
