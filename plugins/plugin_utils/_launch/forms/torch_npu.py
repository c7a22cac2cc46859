# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU_AFFINITY_CONF, by which torch_npu places the threads of a process itself, with the CPUs of the plan.

Ascend/pytorch@9e73e708a ``NPUAffinityController.cpp``: mode 2 gives the four lowest CPUs of an NPU's range to the main thread, ACL, release
and the HCCL watchdog, one each, and the rest to all others. ``npu<N>`` counts visible devices. Several ranges of an NPU are a union from
26.1.0 on; before, the last one wins. When a CPU of any visible device's range is not in the mask of the process, nothing is bound.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import host
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options, release
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Card, Recipe, Workload

OPTIONS = frozenset({"torch_npu_version", "visible_devices", "engine", "environment"})
JOINS_RANGES = (26, 1)
"""The first release that takes several ranges of an NPU together."""
MOST_DEVICES = 100
"""``npu[0-9]{1,2}`` names no more."""


def recipe(workload: Workload, options: Options) -> Recipe:
    if workload.kind != "npu" or not workload.cards:
        raise ValueError(f"{workload.title} names no NPU, and torch_npu binds to NPUs; give npus")
    if len(workload.cards) > MOST_DEVICES:
        raise ValueError(f"{workload.title} has {len(workload.cards)} NPUs, and CPU_AFFINITY_CONF has room for {MOST_DEVICES}")
    parts = [f"npu{number}:{part}" for number, card in enumerate(workload.cards) for part in _ranges(workload, card, options)]
    lines = [f"{name}={value}\n" for name, value in host.environment(workload, options).items()]
    notes = [
        f"Lines of an environment file. The mask of the process must hold all of CPUs {workload.cpus}, or torch_npu binds nothing.",
        "torch_npu places the threads: leave npu_affinity_threads_enabled off, or these processes are skipped. Leave bind_irq out, which "
        "moves the interrupts and stops irqbalance.",
    ]
    return Recipe("".join([*lines, f"CPU_AFFINITY_CONF=2,{','.join(parts)}\n"]), [*notes, *host.unsure(workload, options)])


def _ranges(workload: Workload, card: Card, options: Options) -> list[str]:
    """Return the ranges of an NPU's CPUs without those that take interrupts."""
    cpus = compress(set(expand(card.pool)) - set(expand(workload.irq)))
    if not cpus:
        raise ValueError(f"{workload.title}: nothing of CPUs {card.pool} is left without those of interrupts, {workload.irq}")
    parts = [part if "-" in part else f"{part}-{part}" for part in cpus.split(",")]
    if len(parts) > 1 and release(options.torch_npu_version) < JOINS_RANGES:
        raise ValueError(
            f"{workload.title}: CPUs {cpus} are {len(parts)} ranges, of which torch_npu before 26.1.0 takes the last one only; give "
            "torch_npu_version='26.1.0' where it is that new, or plan pools of one range"
        )
    return parts
