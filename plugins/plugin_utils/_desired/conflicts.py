# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else of a host has CPUs of a plan: interrupts of other devices, cpuset partitions and the kernel command line, and the one that
would fit it. Nothing is written.

Sources: Linux ``Documentation/admin-guide/kernel-parameters.txt``, ``Documentation/timers/no_hz.rst`` and
``Documentation/admin-guide/cgroup-v2.rst``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Isolation, Partition, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of, union

_Cards = Mapping[tuple[str, int], int]
SLICES = ("npu.slice", "gpu.slice")
"""The cgroups of the plan."""
_SHOWN = 4


def isolation(topology: Topology, plan: Plan) -> Iterator[Sentence]:
    """Yield a sentence for every contradiction between the plan and what sets CPUs apart."""
    parameters: Isolation = topology.get("isolation") or {}
    pools = _cards(plan, "pool")
    if not pools:
        return
    yield from _isolated(mask(topology["cpus"].get("isolated") or "") & mask(topology["cpus"]["online"]), pools, plan)
    for partition in parameters.get("partitions") or ():
        yield from _partition(partition, pools)
    if kept := mask(parameters.get("nohz_full") or "") & mask(plan.get("housekeeping") or ""):
        yield Sentence(
            "NPU_KERNEL_CONTRADICTS",
            f"nohz_full on the kernel command line includes CPUs {text_of(kept)}, which are kept for the system. System calls and "
            "interrupts cost more there, and the kernel runs its own work on other CPUs. Leave them out of nohz_full.",
        )
    irqs = _cards(plan, "irq")
    yield from _callbacks(parameters, pools, union(irqs.values()), mask(plan.get("housekeeping") or ""))
    allowed = mask(parameters.get("irqaffinity") or "")
    if allowed and (omitted := union(irqs.values()) & ~allowed):
        yield Sentence(
            "NPU_KERNEL_CONTRADICTS",
            f"irqaffinity on the kernel command line excludes CPUs {text_of(omitted)}, to which the plan binds interrupts of "
            f"{_owners(irqs, omitted)}. New interrupts run on CPUs {text_of(allowed)} until they are bound. Add these CPUs to irqaffinity.",
        )


@remark("NPU_CPUS_ISOLATED")
def _isolated(isolated: int, pools: _Cards, plan: Plan) -> Iterator[str]:
    """Yield where isolated CPUs are in no pool, and where they are only a part of one. Filter plan reports those in pools."""
    everything = union(pools.values())
    excluded = (plan.get("options") or {}).get("exclude_isolated")
    if not excluded and (unused := isolated & ~everything & ~mask(plan.get("housekeeping") or "")):
        yield (
            f"CPUs {text_of(unused)} are isolated from the scheduler and in no pool. Only threads that are pinned there run on them. "
            "Remove them from isolcpus if nothing else needs them."
        )
    partly = {card: pool & ~isolated for card, pool in pools.items() if pool & isolated and pool & ~isolated}
    if partly:
        others = union(partly.values())
        yield (
            f"Pools of {_owners(pools, union(pools[card] for card in partly))} are only partly isolated from the scheduler: CPUs "
            f"{text_of(others)} are not. Threads stay on these unless they are pinned. Isolate whole pools, or none of their CPUs."
        )


@remark("NPU_KERNEL_CONTRADICTS")
def _callbacks(parameters: Isolation, pools: _Cards, irqs: int, kept: int) -> Iterator[str]:
    """Yield where rcu_nocbs has CPUs that are kept for the system, and where it has only a part of a pool without its IRQ CPUs."""
    given, tickless = mask(parameters.get("rcu_nocbs") or ""), mask(parameters.get("nohz_full") or "")
    if needless := given & ~tickless & kept:
        yield (
            f"rcu_nocbs on the kernel command line includes CPUs {text_of(needless)}, which are kept for the system. RCU callbacks of "
            "these CPUs run in kernel threads, which cost more and spare no pool. Leave them out of rcu_nocbs."
        )
    work = {card: pool & ~irqs for card, pool in pools.items()}
    partly = {card: pool & ~(given | tickless) for card, pool in work.items() if pool & given and pool & ~(given | tickless)}
    if partly:
        yield (
            f"rcu_nocbs on the kernel command line has only a part of the pools of {_owners(pools, union(work[card] for card in partly))}: "
            f"RCU callbacks still run on CPUs {text_of(union(partly.values()))}. Add these CPUs to rcu_nocbs, or remove the others."
        )


@remark("NPU_CPUSET_PARTITION")
def _partition(partition: Partition, pools: _Cards) -> Iterator[str]:
    """Yield what a partition does to pools. The scheduler does not spread threads over the CPUs of an isolated one."""
    cpus = mask(partition["cpus"]) & union(pools.values())
    if not cpus:
        return
    group, taken = shown(partition["group"]), f"{text_of(cpus)} of {_owners(pools, cpus)}"
    if not partition["valid"]:
        yield f"cgroup {group} asks to be a cpuset partition with CPUs {taken}, which the kernel does not grant now. Check its cpuset."
    elif not partition["group"].startswith(SLICES):
        yield (
            f"cgroup {group} is a cpuset partition ({partition['kind']}) with CPUs {taken}. The kernel grants them to no other cgroup, so "
            "the pools lose them. Write member to its cpuset.cpus.partition, or exclude these CPUs with npu_affinity_cpus."
        )
    elif partition["kind"] == "isolated":
        yield (
            f"cgroup {group} is an isolated cpuset partition with CPUs {taken}, where threads do not spread over the CPUs by themselves. "
            "Write root or member to its cpuset.cpus.partition, unless every thread is pinned."
        )


@remark("NPU_KERNEL_ADVICE")
def command_line(topology: Topology, plan: Plan) -> list[str]:
    """Return a sentence for every parameter of the kernel command line that would fit the plan, with what it costs."""
    pools, irqs = union(_cards(plan, "pool").values()), union(_cards(plan, "irq").values())
    others = mask(topology["cpus"]["online"]) & ~pools
    if not pools:
        return []
    if not others:
        return [
            "No kernel command line fits this plan, because its pools hold all online CPUs and the kernel needs others for its own work. "
            "Keep some with npu_affinity_housekeeping."
        ]
    fits, workers = "A kernel command line that fits this plan has", text_of(pools & ~irqs)
    lines = [
        f"{fits} isolcpus=managed_irq,{text_of(pools)}: managed interrupts of disks and network cards avoid the pools where they can. "
        f"Cost: CPUs {text_of(others)} serve them all. Without the flag domain the scheduler still spreads threads within a pool."
    ]
    if pools & ~irqs:
        without = f" CPUs {text_of(irqs)} stay out, because the kernel moves the NPU driver's send workqueue off them." if irqs else ""
        lines += [
            f"{fits} nohz_full={workers}: no timer tick while a CPU runs a single thread. Cost: every system call and interrupt takes "
            f"longer there, and nothing is gained where threads share a CPU.{without}",
            f"{fits} rcu_nocbs={workers}: RCU callbacks leave these CPUs; nohz_full implies it. Cost: kernel threads run them elsewhere.",
        ]
    lines.append(
        f"{fits} irqaffinity={text_of(others | irqs)}: new interrupts start outside the pools' other CPUs. Cost: these CPUs get all "
        "interrupts that nothing spreads. A bind does not write the command line; set it in the boot loader and reboot."
    )
    return lines


def _cards(plan: Plan, key: str) -> _Cards:
    return {(entry.get("kind") or "npu", entry["id"]): mask(str(entry.get(key) or "")) for entry in plan["npus"] if entry.get(key)}


def _owners(cards: _Cards, cpus: int) -> str:
    """Return the cards that have some of the CPUs: ``NPU 0-3 and GPU 0``."""
    return _titles(card for card, held in cards.items() if held & cpus)


def _titles(cards: Iterable[tuple[str, int]]) -> str:
    ids: dict[str, list[int]] = {}
    for kind, number in cards:
        ids.setdefault(kind, []).append(number)
    return " and ".join(f"{kind.upper()} {compress(numbers)}" for kind, numbers in ids.items())


@remark("NPU_INTERRUPTS_IN_POOL")
def interrupts(topology: Topology, plan: Plan, placed: Container[str] = ()) -> Iterator[str]:
    """Yield a sentence for each device with interrupts on pools, unless it is ``placed`` there. Those with few interrupts are counted."""
    pools = _cards(plan, "pool")
    everything = union(pools.values())
    counts = [(_on(device, everything), device) for device in topology.get("others") or () if device["pci"].lower() not in placed]
    counts = sorted((row for row in counts if row[0]), key=lambda row: -row[0])
    for count, device in counts[:_SHOWN]:
        owners = _titles(card for card, pool in pools.items() if _on(device, pool))
        yield f"{_device(device)}: {count} of {device['irqs']} interrupts may run on pool CPUs of {owners}."
    if rest := counts[_SHOWN:]:
        yield f"{len(rest)} more devices have {sum(count for count, _device in rest)} interrupts that may run on pool CPUs."


def _on(device: Mapping[str, Any], cpus: int) -> int:
    """Return how many interrupts of a device may run on some of the CPUs."""
    shared: int = sum(count for cpulist, count in device["shared"].items() if mask(cpulist) & cpus)
    return shared + sum((mask(layer) & cpus).bit_count() for layer in device["single"])


def _device(device: Mapping[str, Any]) -> str:
    node = None if device["numa"] is None else f"node {device['numa']}"
    about = (device["driver"], device["pci"] if device["pci"] != device["name"] else None, node)
    details = ", ".join(shown(part) for part in about if part)
    return shown(device["name"]) + (f" ({details})" if details else "")
