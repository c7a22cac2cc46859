# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules that vLLM-Ascend publishes have in common.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``. Hidden NPUs, those that were not requested, take part when
they have allowed CPUs: other processes may use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine


def require_all_online(machine: Machine) -> None:
    """Raise ``ValueError`` where a CPU is offline: for it, ``lscpu -e=CPU,NODE`` prints a ``-`` that the published reader rejects."""
    if machine.offline:
        raise coded_error(
            "NPU_RULE_FAILS",
            f"CPUs {machine.offline} are offline, and the published rule stops at the first of them, for which lscpu names no NUMA node",
        )


def candidates(machine: Machine, requested: Collection[Card]) -> Iterator[tuple[Card, int]]:
    """Yield the cards that take part, ascending, with the usable CPUs of their affinity."""
    for card in machine.cards:
        base = mask(card.affinity or "", f"affinity of {card.name}") & machine.usable
        if base or card in requested:
            yield card, base


def as_printed(card: Card, cpus: int) -> list[int]:
    """Return those CPUs of a card's affinity in the order in which npu-smi prints them."""
    text = card.affinity or ""
    return [cpu for cpu in expand(text, f"affinity of {card.name}") if cpus >> cpu & 1] if "," in text else cpus_of(cpus)
