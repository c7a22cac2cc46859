# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's ``SGLANG_SET_CPU_AFFINITY``: consecutive cores, the same number for each rank.

Source: sgl-project/sglang@004f0c7a8d398a9c4b6844c1d8071502fa88e78c, ``python/sglang/srt/utils/common.py``, ``set_gpu_proc_affinity``,
restated for one server with one rank for each card.

1. A rank gets as many numbers as there are online physical cores for each rank, rounded down; rank *n* starts at *n* times that number.
2. If the host has more online CPUs than cores, each number also stands for the CPU that is the number of cores further on.
3. The kernel leaves out CPUs that the process may not use. A rank of which none is left fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import Rule
from tests.compare.subject import Subject


def slices(cpus: int, cores: int, ranks: int) -> list[int]:
    """Return the CPUs of each rank as masks, from the numbers of online CPUs and cores."""
    size = cores // ranks
    found = [((1 << size) - 1) << rank * size % cores for rank in range(ranks)]
    return [numbers | numbers << cores for numbers in found] if cpus != cores else found


def divide(subject: Subject) -> Mapping[Card, int]:
    machine = subject.machine
    made = slices(machine.online.bit_count(), machine.cores(machine.online).bit_count(), len(subject.cards))
    for rank, cpus in enumerate(made):
        if not cpus & machine.usable:
            raise ValueError(f"rank {rank}: CPU number {(cpus & -cpus).bit_length() - 1} is not eligible")
    return {card: cpus & machine.usable for card, cpus in zip(subject.cards, made, strict=True)}


RULES = (Rule("SGLang, slices", divide),)
