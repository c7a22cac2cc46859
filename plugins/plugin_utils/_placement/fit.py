# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one task fits one host, with which chips and NUMA nodes, and why not.

Sources: volcano-sh/volcano@ed72c7c8, ``pkg/scheduler/plugins/numaaware`` (which hosts are looked at, hints, scores) and the kubelet's
topology manager (what the host then admits). Chips are those of the product's rule; their NUMA nodes are the hint of the NPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import in_force
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import (
    BEST_EFFORT,
    SINGLE,
    Hint,
    Ranking,
    admits,
    best_nodes,
    least_nodes,
)
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import choice as _choice
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import networks
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import STATIC, Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import Product, product_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES


class Refused(ValueError):
    """A host cannot take the task; the text says why."""


@dataclass(eq=False, slots=True)
class Fit:
    """What a task gets on a host: ``chips`` by physical id in order, the NUMA nodes of the hint and how many its CPUs take at least.

    ``assumed`` is what was assumed about the product of the host, '' for nothing.
    """

    host: Host
    family: str | None
    chips: list[int]
    npu_score: int
    hint: Hint
    nodes_used: int
    assumed: str = ""

    @property
    def npus(self) -> list[int]:
        """The logic ids of the chips."""
        return [self.host.chips[chip] for chip in self.chips]


class _Chosen(NamedTuple):
    chips: tuple[int, ...]
    score: int


@lru_cache(maxsize=65536)
def _choose(free: tuple[int, ...], count: int, family: str, multi: bool, healthy: int) -> _Chosen | str:
    """Return the chips and the score, or why there are none. Hosts of one product repeat each other."""
    try:
        choice = _choice.choose(free, count, family, multi, healthy)
    except ValueError as refused:
        return str(refused)
    return _Chosen(tuple(choice.chips), choice.score)


def fit(host: Host, request: Request) -> Fit:
    """Return what a task gets. Raises :class:`Refused`."""
    _admitted(host, request)
    product, chosen = _chips(host, request) if request.npus else (None, _Chosen((), 0))
    family, assumed = product or (None, "")
    chips = list(chosen.chips)
    if sum(host.free) < request.cpus:
        raise Refused(f"{request.cpus} CPUs are wanted, and {sum(host.free)} are free: {_free_by_node(host)}")
    if request.policy == "none":
        return Fit(host, family, chips, chosen.score, Hint(None, True), 0, assumed)
    ranking = Ranking(host.distances) if host.distances else None
    hint = best_nodes(request.cpus, host.capacity, host.free, request.policy, _chip_hint(host, chips), ranking)
    if not admits(request.policy, hint):
        raise Refused(_not_preferred(host, request, chips))
    return Fit(host, family, chips, chosen.score, hint, _nodes_used(host, request.cpus, hint), assumed)


def _admitted(host: Host, request: Request) -> None:
    """Refuse hosts that Volcano's filter leaves out; without a kubelet nobody but the task's own policy decides."""
    if request.policy == "none":
        return
    if host.policy is None:
        if request.kubernetes:
            raise Refused("numa info is empty: there are no kubelet files on the host")
        return
    if host.cpu_policy != STATIC:
        raise Refused(f"cpu manager policy isn't static: the kubelet's is {host.cpu_policy}")
    if host.policy != request.policy:
        raise Refused(f"task topology policy[{request.policy}] is different with node[{host.policy}]")
    if request.cpus and not sum(host.free):
        raise Refused("cpu allocatable map is empty: all CPUs are reserved or given to containers")
    if request.cpus and host.options and host.options.full_pcpus_only and host.topology:
        threads = units_of(host.topology).threads_per_core
        if request.cpus % threads:
            raise Refused(f"SMT Alignment Error: requested {request.cpus} cpus not multiple cpus per core = {threads}")


def _chips(host: Host, request: Request) -> tuple[Product, _Chosen]:
    if host.topology is None:
        raise Refused("the host is described by CPUs only, and NPUs are wanted")
    try:
        product = product_of(host.topology, request.mode or "chip", host.labels, request.family)
    except ValueError as error:
        raise Refused(str(error)) from error
    own = product.rule
    if request.mode not in (None, "chip") and not _choice.hands_out(own, request.mode):
        raise Refused(f"mode {request.mode} hands out inference cards, and its product is {RULES[own].product} ({own})")
    told = f". {product.assumed}" if product.assumed else ""
    if request.family not in ("auto", own):
        raise Refused(f"its product is {RULES[own].product} ({own}), and {request.family} is wanted{told}")
    if request.way:
        try:
            doubt = networks.doubt(request.way, own, host.topology)
        except ValueError as error:
            raise Refused(f"{error}{told}") from error
        product = product._replace(assumed=" ".join(filter(None, (product.assumed, doubt))))
        whole = host.healthy if RULES[own].superpod else 0
        if request.multi and request.way in (networks.SUPERPOD, networks.TREE) and request.npus < whole:
            raise Refused(f"size not allowed: tasks of one job in a SuperPod have the {whole} NPUs of a host each, not {request.npus}")
    chosen = _choose(tuple(host.chips), request.npus, own, request.multi, host.healthy)
    if isinstance(chosen, str):
        raise Refused(chosen + told)
    return product, chosen


def _chip_hint(host: Host, chips: Iterable[int]) -> Hint | None:
    """Return the NUMA nodes of chips, preferred when as few nodes could hold so many; None where the kernel knows no node of one."""
    logic = [host.chips[chip] for chip in chips]
    if not logic or any(npu not in host.chip_node for npu in logic):
        return None
    nodes = union(1 << host.chip_node[npu] for npu in logic)
    by_node = [0] * len(host.ids)
    for place in host.chip_node.values():
        by_node[place] += 1
    return Hint(nodes, nodes.bit_count() == least_nodes(len(logic), by_node))


def _nodes_used(host: Host, cpus: int, hint: Hint) -> int:
    """Return how many NUMA nodes the CPUs take at least, those of the hint first; without CPUs, those of the hint."""
    if not cpus:
        return 0 if hint.nodes is None else hint.nodes.bit_count()
    nodes = host.everything if hint.nodes is None else hint.nodes
    inside = sorted((free for place, free in enumerate(host.free) if nodes >> place & 1), reverse=True)
    outside = sorted((free for place, free in enumerate(host.free) if not nodes >> place & 1), reverse=True)
    used = 0
    for free in inside + outside:
        if cpus > 0 and free:
            used += 1
            cpus -= free
    return used


def _free_by_node(host: Host) -> str:
    return ", ".join(f"{free} on NUMA node {number}" for number, free in zip(host.ids, host.free, strict=True))


def _not_preferred(host: Host, request: Request, chips: list[int]) -> str:
    """Return why no hint that the policy admits exists."""
    sentences = []
    least = least_nodes(request.cpus, host.capacity) if request.cpus else 0
    npu_hint = _chip_hint(host, chips)
    if request.cpus:
        if request.policy == SINGLE and least > 1:
            sentences.append(f"no NUMA node of the host has {request.cpus} CPUs, even when it is empty")
        elif least_nodes(request.cpus, host.free) > least:
            where = "one NUMA node" if least == 1 else f"{least} NUMA nodes"
            sentences.append(f"{request.cpus} CPUs fit {where} when the host is empty, but free are {_free_by_node(host)}")
    if npu_hint and npu_hint.nodes is not None:
        nodes = compress(host.numbers(npu_hint.nodes)).replace(",", ", ")
        npus = compress(host.chips[chip] for chip in chips).replace(",", ", ")
        one_node = npu_hint.nodes.bit_count() == 1
        where = (
            f"NPU{'s' if len(chips) > 1 else ''} {npus} {'are' if len(chips) > 1 else 'is'} on NUMA node{'' if one_node else 's'} {nodes}"
        )
        if not npu_hint.preferred:
            sentences.append(f"{where}, and fewer nodes could hold {len(chips)}")
        elif request.policy == SINGLE and not one_node:
            sentences.append(where)
        elif request.cpus and not sentences:
            sentences.append(f"{where}, and {request.cpus} CPUs do not fit exactly there: free are {_free_by_node(host)}")
    return f"{request.policy}: {'; '.join(sentences)}"


def cpus_of(found: Fit, request: Request) -> int | None:
    """Return the CPUs of a task as a mask, None on a host of which only numbers are known. Raises :class:`Refused`.

    On a host with a plan in force they are those of the NPUs' pools, as far as these are enough; else the kubelet's choice.
    """
    host = found.host
    if host.free_cpus is None or host.topology is None:
        return None
    pools = _pools(found) & host.free_cpus
    if not request.cpus:
        return pools
    available = pools if pools.bit_count() >= request.cpus else host.free_cpus
    near = _near(found, request.cpus) if found.hint.nodes is None else found.hint.nodes
    nodes = None if near is None else host.numbers(near)
    try:
        return allocate(units_of(host.topology), available, request.cpus, host.options or PolicyOptions(), nodes=nodes)
    except ValueError as error:
        raise Refused(str(error)) from error


def _near(found: Fit, cpus: int) -> int | None:
    """Return the NUMA nodes whose CPUs a task without a policy gets first: those of the policy of a kubelet that gives out CPUs, else those
    near its NPUs."""
    host = found.host
    policy = host.policy if host.cpu_policy == STATIC else BEST_EFFORT
    if not found.chips or policy in (None, "none"):
        return None
    ranking = Ranking(host.distances) if host.distances else None
    return best_nodes(cpus, host.capacity, host.free, str(policy), _chip_hint(host, found.chips), ranking).nodes


def use(found: Fit, cpus: int | None, request: Request) -> None:
    """Take away from a host what a task gets there."""
    host = found.host
    for chip in found.chips:
        del host.chips[chip]
    if cpus is not None and host.free_cpus is not None:
        host.free_cpus &= ~cpus
        host.recount()
        return
    needed = request.cpus
    nodes = host.everything if found.hint.nodes is None else found.hint.nodes
    for place in sorted(range(len(host.ids)), key=lambda place: (not nodes >> place & 1, -host.free[place])):
        taken = min(needed, host.free[place])
        host.free[place] -= taken
        needed -= taken


def _pools(found: Fit) -> int:
    """Return the CPUs that the plan in force gives to the task's NPUs; a host with a static kubelet has none."""
    topology = found.host.topology
    if found.host.cpu_policy == STATIC or not topology or not topology.get("applied"):
        return 0
    chosen = set(found.npus)
    pools = [entry["pool"] for npu, entry in in_force(topology) if npu["id"] in chosen and npu.get("kind", "npu") == "npu"]
    return union(mask(pool, "pool of the plan in force") for pool in pools)


def nodes_of(host: Host, cpus: int) -> list[int]:
    """Return the ids of the NUMA nodes that hold CPUs."""
    return [number for number, on_node in zip(host.ids, host.node_cpus, strict=True) if cpus & on_node]
