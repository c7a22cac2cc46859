# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one task fits one host, with which chips and NUMA nodes, and why not.

Sources: volcano-sh/volcano@ed72c7c8, ``pkg/scheduler/plugins/numaaware`` (which hosts are looked at, hints, scores) and the kubelet's
topology manager (what the host then admits). Chips are those of the product's rule; their NUMA nodes are the hint of the NPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import in_force
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import BEST_EFFORT, SINGLE, Hint, admits
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import best_nodes, least_nodes, units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import product as _product
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import STATIC, Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.select import Choice, choose


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


@lru_cache(maxsize=65536)
def _choose(free: tuple[int, ...], count: int, family: str, multi: bool, healthy: int) -> Choice | str:
    """Return the chips and the score, or why there are none. Hosts of one product repeat each other."""
    try:
        return choose(free, count, family, multi, healthy)
    except ValueError as refused:
        return str(refused)


def fit(host: Host, request: Request) -> Fit:
    """Return what a task gets. ``ValueError`` says why the host cannot take it."""
    _admitted(host, request)
    family, assumed, chips, score = _chips(host, request) if request.npus else (None, "", [], 0)
    if sum(host.free) < request.cpus:
        raise ValueError(f"{request.cpus} CPUs are wanted, and {sum(host.free)} are free: {_free_by_node(host)}")
    if request.policy == "none":
        return Fit(host, family, chips, score, Hint(None, True), 0, assumed)
    hint = _best_nodes(host, request.cpus, request.policy, chips)
    if not admits(request.policy, hint):
        raise ValueError(_not_preferred(host, request, chips))
    used = len(_taken(host, request.cpus, hint)) if request.cpus else (hint.nodes or 0).bit_count()
    return Fit(host, family, chips, score, hint, used, assumed)


def _admitted(host: Host, request: Request) -> None:
    """Refuse hosts that Volcano's filter leaves out; without a kubelet nobody but the task's own policy decides."""
    if request.policy == "none" or host.policy is None and not request.kubernetes:
        return
    if host.policy is None:
        raise ValueError("numa info is empty: there are no kubelet files on the host")
    if host.cpu_policy != STATIC:
        raise ValueError(f"cpu manager policy isn't static: the kubelet's is {host.cpu_policy}")
    if host.policy != request.policy:
        raise ValueError(f"task topology policy[{request.policy}] is different with node[{host.policy}]")
    if request.cpus and not sum(host.free):
        raise ValueError("cpu allocatable map is empty: all CPUs are reserved or given to containers")
    if request.cpus and host.options and host.options.full_pcpus_only and host.topology:
        threads = units_of(host.topology).threads_per_core
        if request.cpus % threads:
            raise ValueError(f"SMT Alignment Error: requested {request.cpus} cpus not multiple cpus per core = {threads}")


def _chips(host: Host, request: Request) -> tuple[str, str, list[int], int]:
    """Return the rule of a host's product and what is assumed about it, the chips that a task gets and its score."""
    if host.topology is None:
        raise ValueError("the host is described by CPUs only, and NPUs are wanted")
    product = _product.product_of(host.topology, request.mode or "chip", host.labels, request.family)
    rule = RULES[product.rule]
    by_card = rule.name == "300I_pro" and request.mode == "card"  # which has one chip on a card
    if request.mode not in (None, "chip", _product.mode_of(rule.name)) and not by_card:
        raise ValueError(f"mode {request.mode} hands out inference cards, and its product is {rule.product} ({rule.name})")
    assumed = f". {product.assumed}" if product.assumed else ""
    if request.family not in ("auto", rule.name):
        raise ValueError(f"its product is {rule.product} ({rule.name}), and {request.family} is wanted{assumed}")
    if request.affinity:
        try:
            unconfirmed = _product.unconfirmed(request.affinity, rule.name, host.topology)
        except ValueError as error:
            raise ValueError(f"{error}{assumed}") from error
        product = product._replace(assumed=" ".join(filter(None, (product.assumed, unconfirmed))))
        whole = host.healthy if rule.superpod else 0
        if request.multi and not request.switch and request.npus < whole:
            raise ValueError(f"size not allowed: tasks of one job in a SuperPod have the {whole} NPUs of a host each, not {request.npus}")
    choice = _choose(tuple(host.chips), request.npus, rule.name, request.multi, host.healthy)
    if isinstance(choice, str):
        raise ValueError(choice + assumed)
    return product.rule, product.assumed, list(choice.chips), choice.score


def _chip_hint(host: Host, chips: Iterable[int]) -> Hint | None:
    """Return the NUMA nodes of chips, preferred when as few nodes could hold so many; None where the kernel knows no node of one."""
    logic = [host.chips[chip] for chip in chips]
    if not logic or any(npu not in host.chip_node for npu in logic):
        return None
    nodes = union(1 << host.chip_node[npu] for npu in logic)
    chips_of_nodes = list(Counter(host.chip_node.values()).values())
    return Hint(nodes, nodes.bit_count() == least_nodes(len(logic), chips_of_nodes))


def _best_nodes(host: Host, cpus: int, policy: str, chips: Iterable[int]) -> Hint:
    return best_nodes(cpus, host.capacity, host.free, policy, _chip_hint(host, chips), host.distances)


def _taken(host: Host, cpus: int, hint: Hint) -> dict[int, int]:
    """Return how many CPUs a task takes of NUMA nodes by their position: of as few as it can, those of the hint first."""
    nodes, taken = hint.nodes or 0, {}
    for position in sorted(range(len(host.ids)), key=lambda position: (not nodes >> position & 1, -host.free[position])):
        if count := min(cpus, host.free[position]):
            taken[position] = count
            cpus -= count
    return taken


def _free_by_node(host: Host) -> str:
    return ", ".join(f"{free} on NUMA node {number}" for number, free in zip(host.ids, host.free, strict=True))


def _not_preferred(host: Host, request: Request, chips: list[int]) -> str:
    """Return why no hint that the policy admits exists."""
    sentences = []
    least, hint = least_nodes(request.cpus, host.capacity), _chip_hint(host, chips)
    if request.policy == SINGLE and least > 1:
        sentences.append(f"no NUMA node of the host has {request.cpus} CPUs, even when it is empty")
    elif least_nodes(request.cpus, host.free) > least:
        where = "one NUMA node" if least == 1 else f"{least} NUMA nodes"
        sentences.append(f"{request.cpus} CPUs fit {where} when the host is empty, but free are {_free_by_node(host)}")
    if hint and hint.nodes is not None:
        nodes = compress(host.numbers(hint.nodes)).replace(",", ", ")
        npus = compress(host.chips[chip] for chip in chips).replace(",", ", ")
        one_node = hint.nodes.bit_count() == 1
        one = len(chips) == 1
        where = f"{'NPU' if one else 'NPUs'} {npus} {'is' if one else 'are'} on NUMA {'node' if one_node else 'nodes'} {nodes}"
        if not hint.preferred:
            sentences.append(f"{where}, and fewer nodes could hold {len(chips)}")
        elif request.policy == SINGLE and not one_node:
            sentences.append(where)
        elif request.cpus and not sentences:
            sentences.append(f"{where}, and {request.cpus} CPUs do not fit exactly there: free are {_free_by_node(host)}")
    return f"{request.policy}: {'; '.join(sentences)}"


def cpus_of(fitting: Fit, request: Request) -> int | None:
    """Return the CPUs of a task as a mask, None on a host of which only numbers are known. ``ValueError``: there are too few.

    On a host with a plan in force they are those of the NPUs' pools, as far as these are enough; else the kubelet's choice. Without a
    policy of the task, that begins on the nodes of the policy of a kubelet that gives out CPUs, else on those near its NPUs.
    """
    host = fitting.host
    if host.free_cpus is None or host.topology is None:
        return None
    pools = _pools(fitting) & host.free_cpus
    if not request.cpus:
        return pools
    available = pools if pools.bit_count() >= request.cpus else host.free_cpus
    nodes = fitting.hint.nodes
    policy = host.policy if host.cpu_policy == STATIC else BEST_EFFORT
    if nodes is None and fitting.chips and policy not in (None, "none"):
        nodes = _best_nodes(host, request.cpus, str(policy), fitting.chips).nodes
    numbers = None if nodes is None else host.numbers(nodes)
    return allocate(units_of(host.topology), available, request.cpus, host.options or PolicyOptions(), nodes=numbers)


def use(fitting: Fit, cpus: int | None, request: Request) -> None:
    """Take away from a host what a task gets there."""
    host = fitting.host
    for chip in fitting.chips:
        del host.chips[chip]
    if cpus is not None and host.free_cpus is not None:
        host.give(host.free_cpus & ~cpus)
        return
    for position, count in _taken(host, request.cpus, fitting.hint).items():
        host.free[position] -= count


def _pools(fitting: Fit) -> int:
    """Return the CPUs that the plan in force gives to the task's NPUs; a host with a static kubelet has none."""
    topology = fitting.host.topology
    if fitting.host.cpu_policy == STATIC or not topology or not topology.get("applied"):
        return 0
    chosen = set(fitting.npus)
    pools = [entry["pool"] for npu, entry in in_force(topology) if npu["id"] in chosen and npu.get("kind", "npu") == "npu"]
    return union(mask(pool, "pool of the plan in force") for pool in pools)
