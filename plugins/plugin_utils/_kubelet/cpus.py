# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the static CPU manager of a kubelet gives to a container that asks for whole CPUs of its own.

Source: kubernetes/kubernetes, ``pkg/kubelet/cm/cpumanager/{cpu_assignment,policy_static,policy_options}.go`` at b0d609f0, restated.

1. packed: whole NUMA nodes and whole sockets (nodes first where there are no more of them than sockets), optionally whole or parts of
   last-level caches, whole cores, single threads.
2. At every level the unit with the fewest free CPUs comes first, then the lowest id, inside its parent in the same order.
3. spread (distribute-cpus-across-cores): no whole cores, threads by number inside a socket.
4. distributed (distribute-cpus-across-numa): the smallest number of nodes that can give equal parts in whole groups; of these
   combinations the one that leaves the nodes most alike by standard deviation, the remainder in turns; else packed.

Where it differs: a unit that lies in two parents (a cache across NUMA nodes) is taken once, upstream counts it twice. Of more than four
nodes, upstream can replace the last of four or more chosen ones by a later one (kubernetes pull request 141238); here the choice stands.

All CPU sets are bit masks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import combinations, islice

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask_of, text_of, union

NODES, SOCKETS, CACHES, CORES = "nodes", "sockets", "caches", "cores"


class Units:
    """The units of a machine by the ids that the kubelet sorts by, and their online CPUs as masks.

    The id of a core is its lowest thread. Raises ``ValueError`` where nodes, sockets, caches and cores are not the same CPUs.
    """

    def __init__(self, nodes: Mapping[int, int], sockets: Mapping[int, int], caches: Mapping[int, int], cores: Mapping[int, int]) -> None:
        self.of = {
            level: {number: cpus for number, cpus in units.items() if cpus}
            for level, units in ((NODES, nodes), (SOCKETS, sockets), (CACHES, caches), (CORES, cores))
        }
        self.cpus = union(self.of[CORES].values())
        for level, units in self.of.items():
            held = union(units.values())
            shared = sum(map(int.bit_count, units.values())) != held.bit_count()
            if shared or held != self.cpus or not self.cpus:
                raise ValueError(
                    f"The {level} of the machine hold CPUs {text_of(held) or 'none'}{', some of them twice' * shared}; "
                    f"every online CPU, that is {text_of(self.cpus) or 'none'}, must be in exactly one of them"
                )
        nodes_first = len(self.of[SOCKETS]) >= len(self.of[NODES])
        self.outer, self.inner = (NODES, SOCKETS) if nodes_first else (SOCKETS, NODES)
        self.parents = {self.inner: self.outer, CACHES: NODES, CORES: self.inner}
        self.inside = {
            level: {
                number: {unit: cpus for unit, cpus in self.of[level].items() if cpus & within} for number, within in self.of[parent].items()
            }
            for level, parent in self.parents.items()
        }

    @property
    def threads_per_core(self) -> int:
        return self.average(CORES)

    def average(self, level: str) -> int:
        """Return the CPUs of a unit if all were alike, which is what the kubelet takes sockets and cores for."""
        return self.cpus.bit_count() // len(self.of[level])

    def around(self, level: str, cpus: int) -> int:
        """Return all CPUs of the units that hold some of these."""
        return union(unit for unit in self.of[level].values() if unit & cpus)


class Choice:
    """A choice under way: ``free`` can still be taken, ``taken`` is, ``needed`` CPUs are missing."""

    def __init__(self, units: Units, available: int, count: int) -> None:
        self.units = units
        self.taken = 0
        self.free = available & units.cpus
        self.needed = count
        if self.needed > self.free.bit_count():
            raise ValueError(f"not enough cpus available to satisfy request: requested={count}, available={self.free.bit_count()}")

    def take(self, cpus: int) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.needed -= cpus.bit_count()

    def order(self, level: str) -> list[int]:
        """Return the ids of the units with free CPUs, in the order in which they are taken."""
        if level == self.units.outer:
            return self._sorted(self.units.of[level], self.units.cpus)
        parent = self.units.parents[level]
        inside = [self._sorted(self.units.inside[level][number], self.units.of[parent][number]) for number in self.order(parent)]
        return list(dict.fromkeys(number for numbers in inside for number in numbers))

    def _sorted(self, units: Mapping[int, int], within: int) -> list[int]:
        counts = {number: (cpus & self.free).bit_count() for number, cpus in units.items() if cpus & self.free & within}
        return sorted(counts, key=lambda number: (counts[number], number))

    def whole(self, level: str) -> list[int]:
        """Return the ids of the units that are free as a whole, in order."""
        units = self.units.of[level]
        alike = self.units.average(level) if level in (SOCKETS, CORES) else None
        return [number for number in self.order(level) if (units[number] & self.free).bit_count() == (alike or units[number].bit_count())]

    def take_whole(self, level: str) -> None:
        for number in self.whole(level) if self.needed > 0 else ():
            cpus = self.units.of[level][number] & self.free
            if cpus.bit_count() <= self.needed:
                self.take(cpus)

    def _take_part_of_cache(self, number: int) -> None:
        """Take all that is needed from the cores of one cache with the lowest ids, or nothing."""
        threads = self.units.threads_per_core
        cores = self.units.of[CORES]
        inside = self.units.of[CACHES][number] & self.free
        lowest = sorted(core for core, cpus in cores.items() if cpus & inside)[: math.ceil(self.needed / threads)]
        cpus = union(cores[core] for core in lowest) & self.free
        if threads > 1 and self.needed % 2 and cpus.bit_count() > self.needed:
            cpus &= ~(1 << cpus.bit_length() - 1)
        if cpus.bit_count() == self.needed:
            self.take(cpus)

    def threads(self, level: str) -> Iterator[int]:
        """Yield the free CPUs, unit by unit in order."""
        for number in self.order(level):
            yield from cpus_of(self.units.of[level][number] & self.free)

    def pack(self, spread: bool, by_cache: bool = False) -> int:
        self.take_whole(self.units.outer)
        self.take_whole(self.units.inner)
        for number in self.order(CACHES) if by_cache and self.needed > 0 else ():
            if self.needed >= self.units.average(CACHES):
                self.take_whole(CACHES)
            if self.needed:
                self._take_part_of_cache(number)
        if not spread:
            self.take_whole(CORES)
        if self.needed > 0:
            self.take(mask_of(islice(self.threads(SOCKETS if spread else CORES), self.needed)))
        return self.taken


def packed(units: Units, available: int, count: int, spread: bool = False, by_cache: bool = False) -> int:
    """Return ``count`` of the available CPUs, on as few units as it takes. ``ValueError`` with the kubelet's sentence: too few."""
    return Choice(units, available, count).pack(spread, by_cache)


def distributed(units: Units, available: int, count: int, group: int = 1, spread: bool = False) -> int:
    """Return ``count`` of the available CPUs in equal parts of as few NUMA nodes as it takes, in groups of so many CPUs.

    Where that is not possible the result is that of :func:`packed`. ``ValueError`` with the kubelet's sentence: too few.
    """
    if count % group:
        return packed(units, available, count, spread)
    return _distribute(Choice(units, available, count), group, spread) or packed(units, available, count, spread)


def _distribute(choice: Choice, group: int, spread: bool) -> int:
    """Return the CPUs in equal parts of nodes, 0 where no combination of nodes can give them.

    Each node of a combination gives ``each`` CPUs at once, packed by itself, and receivers then give the remainder in groups by turns.
    """
    nodes = choice.units.of[NODES]
    free = {node: (nodes[node] & choice.free).bit_count() for node in choice.order(NODES)}
    groups = math.ceil(choice.needed / group)
    per_node = math.ceil(math.ceil(choice.units.cpus.bit_count() / group) / len(nodes))
    for size in range(max(1, math.ceil(groups / per_node)), min(groups, len(free)) + 1):
        best: tuple[float, Collection[int], Collection[int]] | None = None
        each = choice.needed // size // group * group
        for combination in combinations([node for node, cpus in free.items() if cpus >= each], size):
            if best and best[0] == 0:
                break
            receivers = _receivers(combination, free, choice.needed, each, group)
            if receivers and (best is None or receivers[0] < best[0]):
                best = receivers[0], combination, receivers[1]
        if best:
            for node in best[1]:
                _take_packed(choice, node, each, spread)
            while choice.needed:
                for node in best[2]:
                    if choice.needed and (nodes[node] & choice.free).bit_count() >= group:
                        _take_packed(choice, node, group, spread)
            return choice.taken
    return 0


def _take_packed(choice: Choice, node: int, count: int, spread: bool) -> None:
    choice.take(Choice(choice.units, choice.free & choice.units.of[NODES][node], count).pack(spread))


def _receivers(
    combination: Collection[int], free: Mapping[int, int], needed: int, each: int, group: int
) -> tuple[float, Collection[int]] | None:
    """Return which nodes of a combination best give the remainder, after how unlike all nodes then are; None where they cannot give it."""
    if sum([free[node] // group for node in combination]) * group < needed:
        return None
    remaining = {node: cpus - each * (node in combination) for node, cpus in free.items()}
    remainder = needed - each * len(combination)
    if remainder == 0:
        return _deviation(remaining.values()), ()
    best: tuple[float, Collection[int]] | None = None
    candidates = [node for node in combination if remaining[node] >= group]
    for size in range(len(candidates), 0, -1):
        for receivers in combinations(candidates, size):
            balance = _balance(remaining, receivers, remainder, group)
            if balance is not None and (best is None or balance < best[0]):
                best = balance, receivers
            if best and best[0] == 0:
                return best
    return best


def _balance(remaining: Mapping[int, int], receivers: Collection[int], remainder: int, group: int) -> float | None:
    """Return how unlike the nodes are once the receivers have given the remainder in turns, None where they cannot."""
    if remainder % group or sum([remaining[node] // group for node in receivers]) * group < remainder:
        return None
    after = dict(remaining)
    while remainder:
        for node in receivers:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
    return _deviation(after.values())


def _deviation(counts: Collection[int]) -> float:
    """Return the standard deviation as the kubelet compares it: mean and result in thousandths."""
    mean = _thousandths(sum(counts) / len(counts))
    return _thousandths(math.sqrt(sum([(count - mean) ** 2 for count in counts]) / len(counts)))


def _thousandths(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


@dataclass(frozen=True)
class PolicyOptions:
    """The options of the static policy, by their names in ``cpuManagerPolicyOptions``. ``ValueError``: they exclude each other."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    distribute_cpus_across_cores: bool = False
    align_by_socket: bool = False
    prefer_align_cpus_by_uncorecache: bool = False

    def __post_init__(self) -> None:
        for other in ("full_pcpus_only", "distribute_cpus_across_numa", "prefer_align_cpus_by_uncorecache"):
            if self.distribute_cpus_across_cores and getattr(self, other):
                name = other.replace("_", "-")
                raise ValueError(f"static policy options {name} and distribute-cpus-across-cores can not be used at the same time")

    def take(self, units: Units, available: int, count: int) -> int:
        if self.distribute_cpus_across_numa:
            group = units.threads_per_core if self.full_pcpus_only else 1
            return distributed(units, available, count, group, self.distribute_cpus_across_cores)
        return packed(units, available, count, self.distribute_cpus_across_cores, self.prefer_align_cpus_by_uncorecache)


def allocate(
    units: Units,
    shared: int,
    count: int,
    options: PolicyOptions | None = None,
    reserved: int = 0,
    nodes: Collection[int] | None = None,
) -> int:
    """Return the CPUs that a container gets for its own.

    ``shared`` is the kubelet's default set, ``reserved`` the part of it that is never given away. ``nodes`` are the NUMA nodes that
    the topology manager chose, None without one: their CPUs come first (with align-by-socket those of their sockets), then others.
    Raises ``ValueError`` with the kubelet's sentence.
    """
    options = options or PolicyOptions()
    if options.align_by_socket and len(units.of[SOCKETS]) > len(units.of[NODES]):
        raise ValueError("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA")
    threads = units.threads_per_core
    if options.full_pcpus_only:
        if count % threads:
            raise ValueError(f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}")
        physical = (shared & ~units.around(CORES, reserved)).bit_count()
        if count > physical:
            raise ValueError(
                f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {physical}, "
                f"requested CPUs = {count}, CPUs per core = {threads}"
            )
    available = shared & ~reserved
    chosen = 0
    if nodes is not None:
        near = union(cpus for node, cpus in units.of[NODES].items() if node in nodes)
        near = available & (units.around(SOCKETS, near) if options.align_by_socket else near)
        chosen = options.take(units, near, min(count, near.bit_count()))
    return chosen | options.take(units, available & ~chosen, count - chosen.bit_count())


def reserve(units: Units, quantity: str | int | float, options: PolicyOptions | None = None) -> int:
    """Return the CPUs that a kubelet keeps for the system, for kube-reserved and system-reserved together such as ``1500m`` or ``2``.

    Part of a CPU is a CPU. Raises ``ValueError`` for what is not a quantity, and where there are too few CPUs.
    """
    text = str(quantity).strip()
    try:
        cpus = Decimal(text[:-1]) / 1000 if text.endswith("m") else Decimal(text)
    except InvalidOperation:
        cpus = Decimal("NaN")
    if not cpus.is_finite() or cpus < 0:
        raise ValueError(f"reserved CPUs: {quantity!r} is not a quantity; expected e.g. 1500m or 2")
    return (options or PolicyOptions()).take(units, units.cpus, math.ceil(cpus))
