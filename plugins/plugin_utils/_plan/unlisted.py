# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NPUs on the PCI bus that npu-smi does not list: CPUs are kept for them, so the others do not grow now and shrink later.

They take part from the first plan on. A host that is bound without one is not planned again because of it, until someone asks for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.keep import Kept
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import Options

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Topology

Entry = Mapping[str, Any]


def join(machine: Machine, topology: Topology, kept: Kept, options: Options) -> list[Card]:
    """Add the unlisted NPUs to the cards of a machine, in the places that they will have, and return them.

    A number that is missing among the logic ids, or else among the cards, is that of an unlisted one. Where as many are not missing, they
    come last.
    """
    npus = [npu for npu in topology["npus"] if npu.get("kind") != "gpu"]
    applied = topology.get("applied") or {}
    records = {(entry.get("pci"), entry.get("chip")): entry for entry in (*applied.get("npus", ()), *(applied.get("lost") or ()))}
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
    taken |= {_number(entry) for entry in kept.lost if entry["pci"] not in {card.pci for card in hidden}}
    _settle(machine, npus, hidden)
    for card in hidden:
        record = records.get((card.pci, card.chip)) or {}
        wanted = [_number(record)] if record.get("slice") else []
        card.id = next((number for number in (*wanted, card.place) if number not in taken), max(taken) + 1)
        taken.add(card.id)
    return hidden


def _number(entry: Entry) -> int:
    return kind_and_number(entry["slice"])[1]


def _settle(machine: Machine, npus: Sequence[Npu], hidden: list[Card]) -> None:
    listed = [card for card in machine.cards if card.kind == "npu"]
    ordered = [*listed, *hidden]
    for told in _slots(npus):
        everything = range(len(ordered))
        missing = [slot for slot in everything if slot not in told.values()]
        if len(missing) == len(hidden):
            slots = {card: told[card.id] for card in listed} | dict(zip(hidden, missing, strict=True))
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
def sentences(lost: Iterable[Entry]) -> Iterator[str]:
    for entry in lost:
        if entry.get("unlisted"):
            kept = f"CPUs {entry['pool']} are kept for it" if entry["pool"] else "no CPUs are kept for it"
            yield (
                f"NPU at {entry['pci']} is on the PCI bus and not listed by npu-smi: {kept}, in {entry['slice']}, and no pool shrinks "
                "when it is listed. Logic ids can change then: name NPUs by PCI address."
            )
