# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What remains of the plan in force when cards have dropped off the bus.

A lost card makes the logic ids of the others close up. Planned again, everybody would get other CPUs while running. So the cards that
are still there, identified by PCI function and chip, keep their pools, roles, memory nodes and slices until someone asks for a new
plan. Where pools cannot be kept, the slices are: settings name NPUs by the numbers of these (:mod:`_entries`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import SETS
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, mask_of, text_in_order, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import kind_and_number
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import roles as _roles
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine, memory
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import Options

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, PlanEntry


class Kept(NamedTuple):
    """What remains: ``numbers`` of the slices of cards that do not have their own id there, and ``entries`` of the plan for the cards
    that keep what they had, None to plan again; ``lost`` are the entries of the others.
    """

    entries: dict[Card, PlanEntry] | None
    lost: list[PlanEntry]
    numbers: dict[Card, int]
    warnings: list[Sentence]


NOTHING = Kept(None, [], {}, [])


def keep(machine: Machine, applied: Plan | None, options: Options, unlisted: Collection[str] = ()) -> Kept:
    """Return what to keep of the plan in force: nothing where no card is missing, or where ``replan`` asks for a new plan.

    NPUs of the plan that npu-smi never listed are not missing as long as they are ``unlisted`` still (:mod:`_plan.listing`).
    ``applied`` is that plan, of which ``npus`` with ``id``, ``pci`` and ``pool`` are enough. Without PCI functions none can be identified.
    """
    records = records_of(applied)
    if not applied or options.replan or (matched := match(machine.cards, records)) is None:
        return NOTHING
    missing = sorted((record for record in records if not any(record is mine for mine in matched.values())), key=number_of)
    missing = [record if record["pci"] in unlisted else {**record, "unlisted": False} for record in missing]
    if all(record.get("unlisted") for record in missing):
        return NOTHING
    numbers = numbers_of(machine.cards, matched, records)
    family = machine.cards[0].family if machine.cards else ""
    lost = [_entry(machine, card_of(record, family), record, options) for record in missing]
    if any(_whole(record) for record in missing if not record.get("unlisted")):
        why = _obstacle(machine, applied, options, matched, numbers)
        if not why:
            entries = {card: _entry(machine, card, record, options) for card, record in matched.items()}
            return Kept(entries, lost, numbers, [*_gone(lost), *_offline([*entries.values(), *lost])])
        for entry in lost:
            freed: Any = {**{key: "" for key in SETS if key in entry}, "released": why}
            entry.update(freed)
            entry.pop("offline", None)
    return Kept(None, lost, numbers, _gone(lost))


def spare_housekeeping(machine: Machine, applied: Plan | None, options: Options) -> None:
    """Keep for the system what was kept, although CPUs are offline, and leave pools in force the CPUs that a number of cores for the
    system would now include, because a lower core is offline.
    """
    if options.housekeeping and applied and _same(applied, options):
        records = records_of(applied) if isinstance(options.housekeeping, int) else []
        taken = machine.housekeeping & union(mask(record.get("pool") or "") for record in records)
        cores = machine.whole_cores(machine.cores(taken))
        machine.usable |= machine.housekeeping & cores & mask(applied.get("cpus") or "")
        machine.housekeeping = machine.housekeeping & ~cores | mask(applied.get("housekeeping") or "") & machine.online
        machine.usable &= ~machine.housekeeping


def _same(applied: Plan, options: Options) -> bool:
    """Return whether the plan in force was made with the same options, and is not to be replaced."""
    return bool(applied.get("options")) and not options.replan and not options.differences(applied["options"])


def in_force(machine: Machine, applied: Plan | None, options: Options) -> dict[Card, int]:
    """Return the pools of the plan in force, as masks; none where it was made with other options, or where ``replan`` asks for others."""
    if not applied or not _same(applied, options):
        return {}
    matched = match(machine.cards, records_of(applied)) or {}
    return {card: mask(record["pool"]) for card, record in matched.items() if record.get("pool")}


def records_of(applied: Plan | None) -> list[PlanEntry]:
    """Return the entries of a plan, those of lost cards last."""
    return [*(applied or {}).get("npus", ()), *((applied or {}).get("lost") or ())]


def match(cards: Collection[Card], records: Collection[PlanEntry]) -> dict[Card, PlanEntry] | None:
    """Return the records of cards that have one, by PCI function and chip; None where a card or a record has no PCI function.

    npu-smi reports no chip of NPUs that it does not list. Their records, and those without a chip, are those of the only chip of their
    function, or counted in the order of ids.
    """
    if not all(record.get("pci") for record in records) or not all(card.pci for card in cards):
        return None
    matched: dict[Card, PlanEntry] = {}
    by_id = [(str(record["pci"]).lower(), record) for record in sorted(records, key=lambda record: int(record["id"]))]
    for card in sorted(cards, key=lambda card: (card.chip, card.id)):
        same = [record for pci, record in by_id if pci == str(card.pci).lower() and record.get("kind", card.kind) == card.kind]
        chosen = next((record for record in same if record.get("chip") == card.chip), None)
        unknown = [record for record in same if record.get("chip") is None or record.get("unlisted")]
        if chosen is None and unknown:
            place = card.chip if len(unknown) > 1 else 0
            chosen = unknown[place] if place < len(unknown) else None
        if chosen is not None and not any(chosen is taken for taken in matched.values()):
            matched[card] = chosen
    return matched


def number_of(record: PlanEntry) -> int:
    return kind_and_number(record["slice"])[1] if record.get("slice") else int(record["id"])


def numbers_of(cards: Iterable[Card], matched: Mapping[Card, PlanEntry], records: Iterable[PlanEntry]) -> dict[Card, int]:
    """Return the numbers of all cards: those of the plan in force, and for cards that it does not know their ids or the next free ones."""
    taken = {number_of(record) for record in records}
    numbers = {card: number_of(record) for card, record in matched.items()}
    for card in cards:
        if card not in numbers:
            numbers[card] = card.id if card.id not in taken else max(taken) + 1
            taken.add(numbers[card])
    return numbers


def _whole(record: PlanEntry) -> list[int]:
    """Return the CPUs of a record, those that were offline at the time included; the order of a pool tells its roles."""
    pool, offline = expand(record["pool"] or "", "pool of the plan in force"), expand(record.get("offline") or "")
    return sorted([*pool, *offline]) if offline else list(pool)


def _obstacle(machine: Machine, applied: Plan, options: Options, matched: Mapping[Card, PlanEntry], numbers: Mapping[Card, int]) -> str:
    """Return why the cards that are there cannot keep their pools, or ''."""
    wanted = [card for card in machine.cards if options.npus is None or numbers[card] in options.npus]
    if unknown := [card for card in wanted if card not in matched]:
        return "the plan in force does not know " + ", ".join(f"{card.name} (PCI {card.pci})" for card in unknown)
    if different := options.differences(applied.get("options") or {}):
        return f"{', '.join(different)} {'has' if len(different) == 1 else 'have'} changed since"
    given = 0
    for card, record in matched.items():
        pool = mask_of(_whole(record))
        if not pool:
            return f"{card.name}, which is back, had none"
        if pool & machine.online & ~machine.usable:
            return f"CPUs {text_of(pool & machine.online & ~machine.usable)} of {card.name} can no longer be used"
        remaining = (pool & machine.online).bit_count()
        if remaining < pool.bit_count() and remaining < machine.least(card):
            return f"{remaining} CPUs of {card.name} are online, and at least {machine.least(card)} are needed"
        if options.repair and pool & given:
            return f"the plan in force gives CPUs {text_of(pool & given)} to more than one card"
        given |= pool
    return ""


@remark("NPU_CARD_LOST")
def _gone(lost: Iterable[PlanEntry]) -> Iterator[str]:
    """Yield which cards are missing and the result for the others; the same from one run to the next."""
    reasons = [(entry.get("released") or "", entry) for entry in lost if not entry.get("unlisted")]
    for why in sorted({reason for reason, _entry in reasons}):
        gone = ", ".join(f"{entry['kind'].upper()} {entry['id']} (PCI {entry['pci']})" for reason, entry in reasons if reason == why)
        kept = "slices, but not their pools, which were planned again" if why else "pools and slices"
        after = f": {why}" if why else "; npu_affinity_replan: true plans again for those that are there"
        yield f"{gone} of the plan in force cannot be found, and the others keep their {kept}{after}."


@remark("NPU_CPU_OFFLINE")
def _offline(entries: Iterable[PlanEntry]) -> Iterator[str]:
    for entry in entries:
        if entry.get("offline"):
            effect = "does without them" if entry["pool"] else "has no limit of its own"
            yield f"CPUs {entry['offline']} of {entry['slice']} are offline; it {effect} until they are back and the host is bound again."


def card_of(record: PlanEntry, family: str = "") -> Card:
    """Return the card of a record, by the kind that the record or its slice says."""
    kind = record.get("kind") or ("gpu" if str(record.get("slice")).startswith("gpu-") else "npu")
    numbers = record.get("phy_id"), record.get("card")
    return Card(kind, int(record["id"]), record.get("pci"), int(record.get("chip") or 0), family, None, None, *numbers)


def _entry(machine: Machine, card: Card, record: PlanEntry, options: Options) -> PlanEntry:
    """Return an entry of the plan: what the record has, and the rest as its pool and its id give it.

    CPUs of the pool that are offline are left out of it, and its roles are then those of what remains; ``offline`` has them.
    """
    whole = _whole(record)
    pool = [cpu for cpu in whole if machine.online >> cpu & 1]
    cpus, offline = mask_of(pool), mask_of(whole) & ~machine.online
    kept: Any = {key: value for key, value in record.items() if key in SETS} if mask(record["pool"] or "") == cpus else {}
    nodes = memory(machine, cpus, card.pci, kept.get("mems"), card not in machine.cards or machine.knows(card))
    roles = _roles.arranged(machine, card, pool, 1, options.repair)[0] if pool else _roles.Roles([], [], [], [], [])
    entry = _roles.entry(machine, card, text_in_order(pool), roles, nodes, f"{card.kind}-{number_of(record)}.slice")
    more: Any = {**kept, **nodes, **({"offline": text_of(offline)} if offline else {})}
    more |= {key: value for key, value in record.items() if key in ("released", "unlisted") and value}
    entry.update(more)
    return entry
