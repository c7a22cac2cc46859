# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to look at in a plan: where its pools are less than was requested, a sentence for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.goals import local
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups, equal_shares
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named


def of_pools(groups: Groups, pools: Mapping[Card, int], strategy: str, irqs: Mapping[Card, str], repaired: bool) -> Iterator[Sentence]:
    """Yield what to look at in pools; ``irqs`` are the CPUs of role irq. Unmet requests are reported only if ``repaired``."""
    yield from isolated(groups.machine, pools)
    yield from workqueues(groups.machine, irqs)
    if repaired:
        yield from unmet(groups, pools, strategy)
        yield from remote(groups, pools, strategy)
        yield from idle(groups, pools, strategy)


@remark("NPU_CPUS_ISOLATED")
def isolated(machine: Machine, pools: Mapping[Card, int]) -> Iterator[str]:
    """Yield where isolated CPUs are put to use. The scheduler does not move threads between them (moby issue 31086)."""
    if not machine.isolated:
        return
    if cards := [card for card, cpus in pools.items() if cpus & machine.isolated]:
        cpus = text_of(union(pools.values()) & machine.isolated)
        yield (
            f"CPUs {cpus} are isolated from the scheduler and in pools of {cards_named(cards)}, where threads do not spread over them by "
            "themselves; npu_affinity_isolation: exclude leaves them out."
        )
    if kept := machine.housekeeping & machine.isolated:
        yield (
            f"CPUs {text_of(kept)} are isolated from the scheduler and kept for the system, whose processes do not spread over them by "
            "themselves; name others with npu_affinity_housekeeping, or use npu_affinity_isolation: exclude."
        )


@remark("NPU_CPUS_ISOLATED")
def workqueues(machine: Machine, irqs: Mapping[Card, str]) -> Iterator[str]:
    """Yield which cards' workqueues the kernel will not run on the CPU of their SQ interrupt; ``irqs`` are the CPUs of role irq."""
    if not machine.online & ~machine.workqueues:
        return
    if cards := [card for card, cpus in irqs.items() if cpus and not 1 << expand(cpus)[0] & machine.workqueues]:
        yield (
            f"The first IRQ CPU of {cards_named(cards)} is isolated (isolcpus, nohz_full): the kernel keeps the driver's send workqueue "
            f"off it, on CPUs {text_of(machine.workqueues)}. Use npu_affinity_isolation: exclude, name other CPUs, or add it to "
            "/sys/devices/virtual/workqueue/cpumask."
        )


def unmet(groups: Groups, pools: Mapping[Card, int], strategy: str) -> Iterator[Sentence]:
    """Yield what a repaired plan could not do: keep whole cores together, and tell which CPUs are near."""
    machine = groups.machine
    held = union(pools.values())
    spare = machine.whole_cores(machine.cores(held)) & machine.online & ~held if machine.smt == "cores" and machine.threads else 0
    if outside := spare & ~machine.usable:
        yield Sentence(
            "NPU_CORES_SPLIT",
            f"CPUs {text_of(outside)} may not be divided, but are threads of cores in pools of {_owners(machine, pools, outside)}, and "
            "whatever runs on them slows those cores down.",
        )
    if idle := spare & machine.usable:
        yield Sentence(
            "NPU_CORES_SPLIT",
            f"{strategy} gives {_owners(machine, pools, idle)} only some threads of cores, and CPUs {text_of(idle)}, the others of these "
            "cores, to none.",
        )
    several = sum(bool(node.cpus) for node in machine.nodes.values()) > 1
    if several and (unknown := [card for card in pools if not machine.knows(card)]):
        yield Sentence(
            "NPU_NUMA_UNKNOWN",
            f"Neither the kernel nor the vendor's tool tells the NUMA node of {cards_named(unknown)}, so it is unknown whether the CPUs of "
            "a pool are near.",
        )


@remark("NPU_CPUS_REMOTE")
def remote(groups: Groups, pools: Mapping[Card, int], strategy: str) -> Iterator[str]:
    """Yield which cards have remote CPUs, and which of these have no CPU of their own node, with numbers."""
    far = {card: cpus & ~local for card, cpus in pools.items() if (local := groups.local_cpus(card)) is not None and cpus & ~local}
    if not far:
        return
    without = [card for card in far if not pools[card] & groups.machine.own_cpus(card)]
    count, total = (sum(cpus[card].bit_count() for card in far) for cpus in (far, pools))
    nearer = (
        "topo_affinity takes near nodes, even_split the card's own alone" if strategy == "global_slice" else "even_split takes no others"
    )
    shares = {card.numa: own_share(groups, card) for card in {card.numa: card for card in far}.values()}
    can_be_near = all(shares[card.numa] >= groups.machine.least(card) for card in far)
    yield f"{strategy} gives {cards_named(far)} remote CPUs: {count} of {total} in these pools{'; ' + nearer if can_be_near else ''}."
    reasons = {card: _reason(groups, card) for card in without}
    for why in dict.fromkeys(reasons.values()):
        cards = [card for card in without if reasons[card] == why]
        nodes = sorted({card.numa for card in cards if card.numa is not None})
        place = f"NUMA {'node' if len(nodes) == 1 else 'nodes'} {', '.join(map(str, nodes))}"
        have = "has no CPU of its" if len(cards) == 1 else "have no CPU of their"
        yield f"{cards_named(cards)} ({len(cards)} of {len(pools)}) {have} own {place}: {why}."


@remark("NPU_CPUS_IDLE")
def idle(groups: Groups, pools: Mapping[Card, int], strategy: str) -> Iterator[str]:
    """Yield which CPUs near the cards a strategy leaves idle."""
    free = groups.machine.usable & ~union(pools.values()) & local(groups)
    cards = [card for card in pools if (groups.local_cpus(card) or 0) & free]
    if cards and strategy != "even_split":  # which leaves nodes without cards idle on purpose
        yield (
            f"{strategy} leaves {free.bit_count()} CPUs idle that are local to {cards_named(cards)}: {text_of(free)}. "
            "npu_affinity_strategy: auto divides them."
        )


def own_share(groups: Groups, card: Card) -> int:
    """Return how many CPUs even_split gives a card at least: those of its own node, divided over the cards there."""
    machine = groups.machine
    alike = sum(other.numa == card.numa for other in machine.cards)
    return min(map(int.bit_count, equal_shares(machine, machine.units(groups.machine.own_cpus(card) & machine.usable), alike)))


def _reason(groups: Groups, card: Card) -> str:
    """Return why a card has no CPU of its own node."""
    if not (cpus := groups.machine.own_cpus(card)):
        return "no CPU is online there"
    if not cpus & groups.machine.usable:
        return f"only CPUs {text_of(groups.machine.usable)} may be divided. Allow others with cpus, or keep fewer with housekeeping"
    return "the CPUs there are in other pools"


@remark("NPU_ROLES_SHARED")
def roles(machine: Machine, sharing_cores: list[Card], small: list[Card]) -> Iterator[str]:
    """Yield which cards have roles that could not be kept on cores of their own, or that are smaller than requested."""
    for sizes in dict.fromkeys(map(machine.sizes, sharing_cores)):
        cards = cards_named(card for card in sharing_cores if machine.sizes(card) == sizes)
        yield f"Pools of {cards} have too few cores to keep {sizes} apart, so these roles run on threads of the same cores."
    for sizes in dict.fromkeys(map(machine.sizes, small)):
        cards = cards_named(card for card in small if machine.sizes(card) == sizes)
        yield f"Pools of {cards} have fewer than {sum(sizes) + 1} CPUs, so that their roles are smaller than {sizes} or share CPUs."


def _owners(machine: Machine, pools: Mapping[Card, int], threads: int) -> str:
    """Name the cards of whose cores some threads are these."""
    return cards_named(card for card, cpus in pools.items() if machine.whole_cores(machine.cores(cpus)) & threads)
