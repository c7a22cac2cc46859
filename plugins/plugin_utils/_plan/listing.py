# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NPUs of a host that ``npu-smi`` does not list, on the host or in the containers of workers.

CPUs are kept for NPUs that are on the PCI bus and not listed, so the others do not grow now and shrink later. They take part from the first
plan on. A host that is bound without one is not planned again because of it, until someone asks for that.

Workers in a container with the devices of some NPUs only compute what ``npu-smi info -m`` lists there: NPUs are counted, and numbered from
0, by that. ``ASCEND_RT_VISIBLE_DEVICES`` alone changes no pool: an NPU that it hides is listed all the same, and counts. Source:
vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import why_unbound
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded_error, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import keep
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, cards_named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import WORKERS

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Plan, PlanEntry, Topology


def restrict(machine: Machine, topology: Topology, options: Options) -> Plan | None:
    """Leave the machine the NPUs that workers see, numbered as these see them, and return what concerns them of the plan in force."""
    applied = topology.get("applied")
    if options.visible_npus is None:
        return applied
    if options.bound_by != WORKERS:
        raise ValueError("npu_affinity_visible_npus: it has an effect only if workers bind themselves; use npu_affinity_bound_by: workers")
    if why := why_unbound(topology):
        raise ValueError(f"npu_affinity_visible_npus: workers of this host do not bind themselves: {why}; leave it out")
    records = keep.records_of(applied)
    matched = keep.match(machine.cards, records)
    numbers = {card: card.id for card in machine.cards} if matched is None else keep.numbers_of(machine.cards, matched, records)
    valid = {*numbers.values(), *map(keep.number_of, records)}
    if unknown := [number for number in options.visible_npus if number not in valid]:
        raise coded_error(
            "NPU_UNKNOWN_NPU",
            f"npu_affinity_visible_npus: the host has no NPU {unknown[0]}; it has {cards_named(machine.cards) or 'none'}",
        )
    hidden = [card for card in machine.cards if numbers[card] not in options.visible_npus]
    machine.cards[:] = [card for card in machine.cards if card not in hidden]
    for place, card in enumerate(machine.cards):
        card.place = place
    if hidden:
        machine.warn(
            "NPU_WORKERS_OVERLAP",
            f"Workers that see only {cards_named(machine.cards) or 'no NPU'} divide all CPUs that they may use between these. Workers "
            f"of {cards_named(hidden)} do not know of them and can use the same CPUs.",
        )
    if not applied:
        return applied
    theirs = [id(record) for card, record in (matched or {}).items() if card in hidden]
    npus, lost = ([record for record in of or () if id(record) not in theirs] for of in (applied["npus"], applied.get("lost")))
    return {**applied, "npus": npus, "lost": lost}


def join(machine: Machine, topology: Topology, kept: keep.Kept, options: Options) -> list[Card]:
    """Add the unlisted NPUs to the cards of a machine, in the places that they will have, and return them.

    A number that is missing among the logic ids, or else among the cards, is that of an unlisted one. Where as many are not missing, they
    come last.
    """
    npus = [npu for npu in topology["npus"] if npu.get("kind") != "gpu"]
    applied = topology.get("applied") or {}
    records = {(entry.get("pci"), entry.get("chip")): entry for entry in keep.records_of(applied)}
    reserved = {function for (function, _chip), entry in records.items() if entry.get("unlisted")}
    again = options.replan or not applied.get("npus") or bool(kept.lost)
    devices = [device for device in topology.get("unlisted") or () if again or device["pci"] in reserved]
    if not npus or not devices:
        return []
    chips = max(Counter(npu["pci"] for npu in npus).values())
    hidden = [
        Card("npu", -1, device["pci"], chip, device["family"], device["numa"], _affinity(machine, device["numa"]))
        for device in devices
        for chip in range(chips)
    ]
    taken = {kept.numbers.get(card, card.id) for card in machine.cards if card.kind == "npu"}
    taken |= {keep.number_of(entry) for entry in kept.lost if entry["pci"] not in {card.pci for card in hidden}}
    _settle(machine, npus, hidden)
    for card in hidden:
        record = records.get((str(card.pci), card.chip))
        wanted = [keep.number_of(record)] if record and record.get("slice") else []
        card.id = next((number for number in (*wanted, card.place) if number not in taken), max(taken) + 1)
        taken.add(card.id)
    return hidden


def _settle(machine: Machine, npus: Sequence[Npu], hidden: list[Card]) -> None:
    listed = [card for card in machine.cards if card.kind == "npu"]
    ordered = [*listed, *hidden]
    for numbers in _slots(npus):
        missing = [slot for slot in range(len(ordered)) if slot not in numbers.values()]
        if len(missing) == len(hidden):
            slots = {card: numbers[card.id] for card in listed} | dict(zip(hidden, missing, strict=True))
            ordered.sort(key=slots.__getitem__)
            break
    for place, card in enumerate(ordered):
        card.place = place
    machine.cards[:] = sorted([*machine.cards, *hidden], key=lambda card: (card.place, card.kind == "gpu"))


def _slots(npus: Sequence[Npu]) -> Iterator[dict[int, int]]:
    """Yield what may say which NPUs are left out, as numbers by logic id: the ids themselves, and the cards with their chips."""
    if max(int(npu["id"]) for npu in npus) >= len(npus):
        yield {int(npu["id"]): int(npu["id"]) for npu in npus}
    if all(npu.get("card") is not None and npu.get("chip") is not None for npu in npus):
        chips = max(int(npu["chip"]) for npu in npus) + 1
        yield {int(npu["id"]): int(npu["card"]) * chips + int(npu["chip"]) for npu in npus}


def _affinity(machine: Machine, numa: int | None) -> str | None:
    """Return what npu-smi would print: the CPUs of the node, where it prints any for others."""
    if numa not in machine.nodes or all(card.affinity is None for card in machine.cards):
        return None
    return text_of(machine.nodes[numa].cpus) or None


@remark("NPU_CARD_UNLISTED")
def sentences(lost: Iterable[PlanEntry]) -> Iterator[str]:
    for entry in lost:
        if entry.get("unlisted"):
            kept = f"CPUs {entry['pool']} are kept for it" if entry["pool"] else "no CPUs are kept for it"
            yield (
                f"NPU at {entry['pci']} is on the PCI bus and not listed by npu-smi: {kept}, in {entry['slice']}, and no pool shrinks "
                "when it is listed. Logic ids can change then: name NPUs by PCI address."
            )
