# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A topology as sets: what can be divided, its NUMA nodes and cores, and the cards it is divided over.

Card is the word for whatever a pool belongs to: an NPU chip or a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import FAR, distances_of, owners
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cpus_of, mask, mask_of, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import PUBLISHED, STRICT, WIDE, Options, RoleSizes

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base import documents


@dataclass(eq=False, slots=True)
class Card:
    """An NPU chip or a GPU. ``affinity`` is the cpulist that npu-smi printed, None when it printed nothing for any NPU.

    ``place`` is the logic id that a rule counts by: another one than ``id`` where npu-smi does not list all NPUs of the bus.
    """

    kind: str
    id: int
    pci: str | None
    chip: int
    family: str
    numa: int | None
    affinity: str | None
    phy_id: int | None = None
    card: int | None = None
    place: int = -1

    def __post_init__(self) -> None:
        self.place = self.id

    @property
    def name(self) -> str:
        return f"{'GPU' if self.kind == 'gpu' else 'NPU'} {self.id}"

    @property
    def slice(self) -> str:
        return f"{self.kind}-{self.id}.slice"

    @property
    def has_roles(self) -> bool:
        """GPUs and A5 have no interrupts and threads of the kind that roles are for: their pool is all main."""
        return self.kind == "npu" and self.family != "a5"


@dataclass(eq=False)
class Node:
    """A NUMA node with its online CPUs as a mask, and its entry in the topology. ``owner`` is whose its memory is."""

    id: int
    cpus: int
    has_memory: bool
    entry: documents.Node | None
    owner: documents.Owner | None = None

    @cached_property
    def distances(self) -> Mapping[int, int]:
        """The distances by node id. Most are never needed."""
        return distances_of(self.entry) if self.entry else {}


@dataclass(eq=False)
class Machine:
    """What a topology and the options leave to divide, CPU sets as masks.

    ``usable`` are the CPUs that pools may hold. A core is named by its lowest thread: ``core_of`` maps its CPUs to that, and ``threads``
    has the CPUs at every distance to it, so that cores can be looked at without going through CPUs. Cores with one thread are in neither.
    ``caches`` and ``sockets`` are the CPUs of each, as far as they are known. ``memory`` is the option. ``in_force`` are the pools of the
    plan in force, where it was made with the same options, and ``divided`` the CPUs that could be divided then.
    """

    online: int
    offline: str
    isolated: int
    workqueues: int
    usable: int
    nodes: dict[int, Node]
    core_of: Mapping[int, int]
    threads: list[tuple[int, int]]
    caches: list[int]
    threads_per_core: int
    cards: list[Card]
    smt: str
    min_cpus: int
    roles: RoleSizes
    housekeeping: int = 0
    sockets: list[int] = field(default_factory=list)
    warnings: list[Sentence] = field(default_factory=list)
    roles_of: Mapping[Card, RoleSizes] = field(default_factory=dict)
    memory: str = WIDE
    in_force: Mapping[Card, int] = field(default_factory=dict)
    divided: int = -1

    def distance(self, node: int, other: int) -> int:
        return self.nodes[node].distances.get(other, FAR)

    def knows(self, card: Card) -> bool:
        """Return whether the kernel or npu-smi tells which CPUs are near to a card."""
        return bool(self.printed(card)) or card.numa in self.nodes

    def printed(self, card: Card) -> int:
        """Return the CPUs that npu-smi printed for a card; none where they tell nothing: all of them, or where the kernel knows no node of
        a PCI function, those of the first node, which npu-smi prints then."""
        affinity = mask(card.affinity or "", f"affinity of {card.name}") & self.online
        first = next((node.cpus for _id, node in sorted(self.nodes.items()) if node.cpus), 0)
        is_guess = card.pci and card.numa not in self.nodes and affinity == first
        return 0 if is_guess or affinity == self.online else affinity

    def warn(self, code: str, text: str) -> None:
        self.warnings.append(Sentence(code, text))

    def require_cpus(self, refusal: str) -> None:
        if self.cards and not self.usable:
            raise coded_error("NPU_TOO_FEW_CPUS", refusal)

    def least(self, card: Card) -> int:
        """Return the size of the smallest pool that a card may have: ``min_cpus``, and where roles are sized, one CPU more than those.

        With the published sizes, ``min_cpus`` may allow pools in which roles share CPUs.
        """
        sizes = self.sizes(card)
        return self.min_cpus if sizes == PUBLISHED or not card.has_roles else max(self.min_cpus, sum(sizes) + 1)

    def sizes(self, card: Card) -> RoleSizes:
        """Return the sizes of the roles of a card: those of its workload, or of the host."""
        return self.roles_of.get(card, self.roles)

    def own_cpus(self, card: Card) -> int:
        """Return the CPUs of a card's own NUMA node as a mask, none where that is not known."""
        return self.nodes[card.numa].cpus if card.numa in self.nodes else 0

    @property
    def threads_per_unit(self) -> int:
        """The CPUs of a part that is never split: those of a core, or 1 with ``smt: threads``."""
        return self.threads_per_core if self.smt == "cores" else 1

    @cached_property
    def _runs(self) -> list[int]:
        """All cores (their lowest threads) in the order in which they are divided, as masks within which they ascend."""
        remaining, parts = self.cores(self.online), []
        for cache in self.caches:
            parts.append((cache & -cache, cache & remaining))
            remaining &= ~cache
        parts += [(1 << core, 1 << core) for core in cpus_of(remaining)]
        runs = [0]
        for _lowest, cores in sorted(parts):
            if runs[-1] < cores & -cores:
                runs[-1] |= cores
            elif cores:
                runs.append(cores)
        return runs

    def units(self, cpus: int) -> list[int]:
        """Return the parts of a set that are never split, in the order in which they are divided, as masks within which they ascend.

        Cores (their lowest threads) ordered by last-level cache, then by number, so that neighbours share caches; with
        ``smt: threads`` the CPUs by number. See :meth:`joined`.
        """
        if self.smt == "threads":
            return [cpus] if cpus else []
        cores = self.cores(cpus)
        return [run & cores for run in self._runs if run & cores]

    def each_unit(self, cpus: int) -> list[int]:
        """Return the numbers of :meth:`units`."""
        return [unit for units in self.units(cpus) for unit in cpus_of(units)]

    def number(self, cpus: int) -> int:
        """Return the number of :meth:`units` of a set."""
        return (cpus if self.smt == "threads" else self.cores(cpus)).bit_count()

    def joined(self, units: int) -> int:
        """Return the usable CPUs of units. A core of which only some threads are usable counts with those."""
        return units if self.smt == "threads" else self.whole_cores(units) & self.usable

    def by_size(self, units: list[int]) -> list[tuple[int, list[int]]]:
        """Return units by their number of usable CPUs, the largest first; most machines have one size only."""
        everything = union(units)
        if self.joined(everything).bit_count() == everything.bit_count() * self.threads_per_unit:
            return [(self.threads_per_unit, units)]
        of_size = [everything]
        for offset, threads in [(0, -1), *self.threads]:
            usable = (self.usable & threads) >> offset & everything
            of_size.append(0)
            for size in range(len(of_size) - 2, -1, -1):
                of_size[size + 1] |= of_size[size] & usable
                of_size[size] &= ~usable
        return [(size, [part & same for part in units if part & same]) for size, same in reversed([*enumerate(of_size)]) if same and size]

    def cores(self, cpus: int) -> int:
        """Return the cores that a set touches, as the mask of their lowest threads."""
        lowest = cpus
        for offset, threads in self.threads:
            lowest = lowest & ~threads | (cpus & threads) >> offset
        return lowest

    def whole_cores(self, cores: int) -> int:
        """Return all threads of cores, which are given as :meth:`cores` gives them."""
        return cores | union(cores << offset & threads for offset, threads in self.threads)

    def other_threads(self, cpus: int) -> int:
        """Return the usable CPUs that are not in a set, but are threads of its cores."""
        return self.whole_cores(self.cores(cpus)) & self.usable & ~cpus if self.threads else 0


def memory(machine: Machine, cpus: int, pci: str | None, mems: str | None = None, located: bool = True) -> dict[str, str]:
    """Return the ``mems`` of an entry of the plan with these CPUs, and its ``memory_nodes``, those that the option ``memory`` allows.

    ``mems``, if not given, are the memory nodes of the CPUs, or where they have none all the nearest. A GPU also has its own memory.
    Memory is not bound where the node of the card is not ``located``: the nodes of its CPUs tell nothing of it.
    """
    gpu_memory = mask_of(node.id for node in machine.nodes.values() if node.has_memory and pci and (node.owner or {}).get("gpu") == pci)
    mems = text_of(gpu_memory | _nearest_memory(machine, cpus)) if mems is None else mems
    if not located and not gpu_memory:
        return {"mems": mems, "memory_nodes": ""}
    if mems and machine.memory == WIDE:
        return {"mems": mems, "memory_nodes": text_of(mask(mems) | _of_sockets(machine, mask(mems)))}
    return {"mems": mems, "memory_nodes": mems if machine.memory == STRICT else ""}


def _nearest_memory(machine: Machine, cpus: int) -> int:
    nearest = [node for node in machine.nodes.values() if node.cpus & cpus]
    if nodes := [node.id for node in nearest if node.has_memory]:
        return mask_of(nodes)
    others = [node for node in machine.nodes.values() if node.has_memory and "gpu" not in (node.owner or {})]
    away = {other.id: min(machine.distance(node.id, other.id) for node in nearest) for other in others if nearest}
    return mask_of(node for node, distance in away.items() if distance == min(away.values()))


def _of_sockets(machine: Machine, mems: int) -> int:
    """Return the memory nodes of the sockets that own some of these nodes, and those that nobody owns."""
    nodes = [node for node in machine.nodes.values() if node.has_memory]
    sockets = [node.owner for node in nodes if mems >> node.id & 1 and "socket" in (node.owner or {})]
    return mask_of(node.id for node in nodes if node.owner is None or node.owner in sockets)


def cards_named(cards: Iterable[Card]) -> str:
    """Return ``NPUs 0 and 1``, ``NPU 0 and GPU 0``."""
    kinds: dict[str, list[int]] = {}
    for card in cards:
        kinds.setdefault("GPU" if card.kind == "gpu" else "NPU", []).append(card.id)
    return " and ".join(
        f"{kind}{'s' if len(ids) > 1 else ''} {compress(ids).replace(',', ', ')}" for kind, ids in sorted(kinds.items(), reverse=True)
    )


def read(topology: documents.Topology, options: Options) -> Machine:
    """Return the machine of a topology. ``ValueError`` says what the topology lacks, or which option leaves nothing to divide."""
    if not isinstance(topology, Mapping) or not {"cpus", "npus"} <= topology.keys():
        raise ValueError(
            "topology: expected the fact npu_affinity_topology of npu.affinity.topology_facts, with cpus, numa and npus; "
            f"got {type(topology).__name__}" + (f" with {', '.join(sorted(map(str, topology)))}" if isinstance(topology, Mapping) else "")
        )
    cpus = topology["cpus"]
    online = mask(cpus["online"], "cpus.online of the topology")
    core_of, threads, threads_per_core = _cores(tuple(cpus.get("siblings") or ()))
    machine = Machine(
        online=online,
        offline=cpus.get("offline") or "",
        isolated=mask(cpus.get("isolated") or "", "cpus.isolated of the topology") & online,
        workqueues=mask(cpus.get("workqueues") or "", "cpus.workqueues of the topology") or online,
        usable=online,
        nodes=_nodes(topology, online),
        core_of=core_of,
        threads=threads,
        caches=sorted((mask(cache, "cpus.caches of the topology") for cache in cpus.get("caches") or ()), key=lambda cache: cache & -cache),
        threads_per_core=threads_per_core,
        cards=_cards(topology["npus"]),
        smt=options.smt,
        min_cpus=options.min_cpus,
        roles=options.roles,
        sockets=[mask(socket, "cpus.sockets of the topology") for socket in cpus.get("sockets") or ()],
        memory=options.memory,
    )
    with_cpus = [node.id for node in machine.nodes.values() if node.cpus]
    for card in machine.cards if len(with_cpus) == 1 and with_cpus[0] != NO_NODE else ():
        card.numa = with_cpus[0] if card.numa not in machine.nodes else card.numa
    _restrict(machine, options)
    _set_aside(machine, options)
    return machine


def _nodes(topology: documents.Topology, online: int) -> dict[int, Node]:
    """Return the nodes. A topology that was written by hand may not tell the owners."""
    numa, nodes, covered = topology.get("numa") or (), {}, 0
    for entry in sorted(numa, key=lambda entry: int(entry["id"])):
        cpus = mask(entry.get("cpus") or "", f"cpus of NUMA node {entry['id']}") & online & ~covered
        number = int(entry["id"])
        nodes[number] = Node(number, cpus, entry.get("memory_mib") != 0, entry, entry.get("owner"))
        covered |= cpus
    if not all("owner" in entry for entry in numa):
        for number, owner in owners(numa, topology["cpus"].get("sockets") or (), {}, ())[0].items():
            nodes[number].owner = owner
    if online & ~covered:
        nodes[NO_NODE] = Node(NO_NODE, online & ~covered, False, None)
    return nodes


@lru_cache(maxsize=16)
def _cores(siblings: tuple[str, ...]) -> tuple[Mapping[int, int], list[tuple[int, int]], int]:
    """Return ``core_of``, ``threads`` and ``threads_per_core`` of a machine; kept for the last 16 models of machines."""
    core_of = {}
    threads: dict[int, int] = {}
    for text in siblings:
        cpus = sorted(expand(text, "cpus.siblings of the topology"))
        core_of.update(dict.fromkeys(cpus, cpus[0]))
        for cpu in cpus[1:]:
            threads[cpu - cpus[0]] = threads.get(cpu - cpus[0], 0) | 1 << cpu
    return core_of, list(threads.items()), max(Counter(core_of.values()).values(), default=1)


def _cards(entries: Iterable[documents.Npu]) -> list[Card]:
    cards = [
        Card(
            kind=str(entry.get("kind") or "npu"),
            id=int(entry["id"]),
            pci=entry.get("pci"),
            chip=int(entry.get("chip") or 0),
            family=str(entry.get("family") or ""),
            numa=None if (numa := entry.get("numa")) is None else int(numa),
            affinity=entry.get("affinity"),
            phy_id=entry.get("phy_id"),
            card=entry.get("card"),
        )
        for entry in entries
    ]
    cards.sort(key=lambda card: (card.id, card.kind == "gpu"))
    for card, following in zip(cards, cards[1:], strict=False):
        if (card.id, card.kind) == (following.id, following.kind):
            raise ValueError(f"{card.name} occurs twice in the topology ({card.pci} and {following.pci}); logic ids must be unique")
    return cards


def _restrict(machine: Machine, options: Options) -> None:
    """Leave only the CPUs of the option ``cpus``, and none that are isolated where those are excluded."""
    if machine.cards and not machine.online:
        raise coded_error("NPU_SMI_UNAVAILABLE", "The topology has no online CPU to divide; its problems say what could not be read")
    if options.cpus:
        requested = mask(options.cpus, "cpus")
        machine.usable = machine.online & requested
        machine.require_cpus(f"npu_affinity_cpus: none of {options.cpus} is online; online are {text_of(machine.online)}")
        if requested & ~machine.online:
            machine.warn(
                "NPU_CPUS_LEFT_OUT", f"npu_affinity_cpus: {text_of(requested & ~machine.online)} are not online and were left out."
            )
    if options.exclude_isolated:
        machine.usable &= ~machine.isolated
        machine.require_cpus(
            f"exclude_isolated: nothing is left to divide of {options.cpus or text_of(machine.online)}, because "
            f"{text_of(machine.isolated)} are isolated; allow other CPUs with cpus, or isolate fewer"
        )


def _set_aside(machine: Machine, options: Options) -> None:
    """Take away what is kept for the system. Isolated CPUs that are excluded are not kept either: nothing spreads over them."""
    allowed = machine.online & ~machine.isolated if options.exclude_isolated else machine.online
    if isinstance(options.housekeeping, int):
        short = []
        for node in machine.nodes.values():
            cores = cpus_of(machine.cores(node.cpus & allowed))
            for core in cores[: options.housekeeping]:
                machine.housekeeping |= machine.whole_cores(1 << core) & allowed
            if 0 < len(cores) <= options.housekeeping:
                short.append(node.id)
        if short:
            machine.warn(
                "NPU_CPUS_LEFT_OUT",
                f"npu_affinity_housekeeping: all cores of NUMA nodes {compress(short)} are kept for the system, because they have at "
                f"most {options.housekeeping}.",
            )
    elif options.housekeeping:
        requested = mask(options.housekeeping, "housekeeping")
        if absent := requested & ~machine.online:
            machine.warn("NPU_CPUS_LEFT_OUT", f"npu_affinity_housekeeping: {text_of(absent)} are not online.")
        if isolated := requested & machine.online & ~allowed:
            machine.warn("NPU_CPUS_LEFT_OUT", f"npu_affinity_housekeeping: {text_of(isolated)} are isolated and were left out.")
        machine.housekeeping = requested & allowed
        if machine.smt == "cores":
            machine.housekeeping = machine.whole_cores(machine.cores(machine.housekeeping)) & allowed
    machine.usable &= ~machine.housekeeping
    machine.require_cpus(
        f"npu_affinity_housekeeping: {options.housekeeping} reserves all CPUs ({options.cpus or text_of(allowed)}); reserve fewer"
    )
