# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workers compute whose ``npu-smi`` lists some NPUs of the host only, as in a container with the devices of these.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``: NPUs are counted, and numbered from 0, by what
``npu-smi info -m`` lists. ``ASCEND_RT_VISIBLE_DEVICES`` alone changes no pool: an NPU that it hides is listed all the same, and counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import why_unbound
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import keep
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import WORKERS

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology


def restrict(machine: Machine, topology: Topology, options: Options) -> Plan | None:
    """Leave the machine the NPUs that workers see, numbered as these see them, and return what concerns them of the plan in force."""
    applied = topology.get("applied")
    if options.visible_npus is None:
        return applied
    if options.bound_by != WORKERS:
        raise ValueError("npu_affinity_visible_npus: it has an effect only if workers bind themselves; use npu_affinity_bound_by: workers")
    if why := why_unbound(topology):
        raise ValueError(f"npu_affinity_visible_npus: workers of this host do not bind themselves: {why}; leave it out")
    records = [*(applied or {}).get("npus", ()), *((applied or {}).get("lost") or ())]
    told = all(record.get("pci") for record in records) and all(card.pci for card in machine.cards)
    matched = keep.match(machine.cards, records) if told else {}
    numbers = keep.numbers_of(machine.cards, matched, records) if told else {card: card.id for card in machine.cards}
    known = {*numbers.values(), *map(keep.number_of, records)}
    if unknown := [number for number in options.visible_npus if number not in known]:
        raise ValueError(
            Sentence(
                "NPU_UNKNOWN_NPU",
                f"npu_affinity_visible_npus: the host has no NPU {unknown[0]}; it has {cards_named(machine.cards) or 'none'}",
            )
        )
    hidden = [card for card in machine.cards if numbers[card] not in options.visible_npus]
    machine.cards[:] = [card for card in machine.cards if card not in hidden]
    for place, card in enumerate(machine.cards):
        card.place = place
    if hidden:
        machine.warnings.append(
            Sentence(
                "NPU_WORKERS_OVERLAP",
                f"Workers that see only {cards_named(machine.cards) or 'no NPU'} divide all CPUs that they may use between these. Workers "
                f"of {cards_named(hidden)} do not know of them and can use the same CPUs.",
            )
        )
    theirs = [id(matched[card]) for card in hidden if card in matched]
    if not applied:
        return applied
    npus, lost = ([record for record in of or () if id(record) not in theirs] for of in (applied["npus"], applied.get("lost")))
    return {**applied, "npus": npus, "lost": lost}
