# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equal slices of all allowed CPUs by number, over all NPUs of the host by logic id.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, for A3 and for hosts whose topology is not reported.

1. Allowed CPUs ascending; every NPU of the host counts, requested or not.
2. Each gets ``CPUs // NPUs``; the remainder goes to the lowest ids, one CPU each.
3. NPU n gets the n-th slice. Neither NUMA nodes nor cores are looked at.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cut
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Pools, Strategy
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._published import require_all_online

FOR_IRQS = 2
"""So many CPUs less are enough for an A5, which keeps none for interrupts."""


def pools(machine: Machine, requested: Collection[Card]) -> Pools:
    require_all_online(machine)
    allowed, total = machine.usable.bit_count(), len(machine.cards)
    size, extra = divmod(allowed, total)
    without_irqs = all(card.family == "a5" for card in machine.cards)
    needed = max(1, machine.min_cpus - FOR_IRQS) if without_irqs else machine.min_cpus
    if size < needed:
        raise coded_error(
            "NPU_TOO_FEW_CPUS",
            f"Insufficient CPUs for binding with CPU role reservations: total_allowed={allowed}, total_npus={total}, "
            f"min_per_npu={size} (<{needed}). Need at least {total * needed} CPUs in cpuset.",
        )
    slices = cut([machine.usable], (size + (number < extra) for number in range(total)))
    for card in machine.cards:
        if card.place >= total and card in requested:
            raise coded_error("NPU_UNKNOWN_NPU", f"Invalid NPU id {card.id}, total_npus={total}.")
    return Pools("global_slice", {card: slices[card.place] for card in machine.cards if card.place < total})


STRATEGY = Strategy(pools, families=("a3",))
