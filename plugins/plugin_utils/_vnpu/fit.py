# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cards can take a request for parts of NPUs: HAMi's rules, in its order and its words.

Project-HAMi/HAMi@4707fb02 ``pkg/device/ascend/device.go`` (``Fit``). Where HAMi leaves the order to chance (groups of the same size), the
group that was met first goes first, so the same input always has the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import npus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import BY_NAME, CHIPS, Request, slots

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology


class Device(TypedDict, total=False):
    """A card: memory in MB, ``core`` in percent in soft mode. It has an id and memory, and others than these defaults where needed."""

    id: str
    index: int | None
    total_memory_mb: int
    used_memory_mb: int
    total_core: int
    used_core: int
    slots: int
    used_slots: int
    type: str
    healthy: bool
    network_id: Hashable


class Part(TypedDict):
    """What a device gives to a request."""

    id: str
    memory_mb: int
    core: int
    template: str | None


_DEVICE: dict[str, object] = {"id": None, "index": None, "total_memory_mb": None, "used_memory_mb": 0, "total_core": 100, "used_core": 0}
_DEVICE |= {"slots": 1, "used_slots": 0, "type": "", "healthy": True, "network_id": None}
_REQUEST = {"cards": 1, "memory_mb": 0, "memory_percent": 100, "core": 0, "type": "", "template": None}
_COUNTS = ("total_memory_mb", "used_memory_mb", "total_core", "used_core", "slots", "used_slots", "cards", "memory_mb", "core")
_PAIRED = {chip.word for chip in CHIPS if chip.pairs}
WHOLE = 100


@dataclass(frozen=True)
class Rules:
    """``soft``: the request is one for soft split; ``node_soft``: the node can do that; ``mutex``: only unused cards.

    ``use`` and ``nouse``: ids of devices to choose among, or to leave out. ``word``: HAMi's word for the chip (default: the type).
    """

    soft: bool = False
    node_soft: bool = False
    mutex: bool = False
    use: Sequence[str] = ()
    nouse: Sequence[str] = ()
    word: str = ""


@dataclass(frozen=True)
class Fitted:
    """``devices`` are the ids in the order of choice, None where the request does not fit, and then ``reason`` is HAMi's sentence.

    ``reasons`` is the word for every device that was passed over; ``taken`` is what each gives.
    """

    devices: list[str] | None
    reason: str | None
    reasons: dict[str, str] = field(default_factory=dict)
    taken: list[Part] = field(default_factory=list)


Candidate = tuple[Device, int]
"""A card and the memory that it would give."""


def fit(devices: Sequence[Device], request: Request, rules: Rules) -> Fitted:
    """Return where a request fits. ``ValueError`` for a device or a request that is none."""
    cards = [cast("Device", _checked("device", device, _DEVICE)) for device in devices]
    asked = cast("Request", _checked("request", request, _REQUEST))
    if asked["cards"] < 1:
        raise ValueError(f"request: expected 1 or more cards; got {asked['cards']}")
    if len({card["id"] for card in cards}) < len(cards):
        raise ValueError("devices: two of them have the same id; every device needs one of its own")
    if rules.soft and not rules.node_soft:
        return Fitted(None, _sentence({"ModeNotFit": 1}, len(cards)), {card["id"]: "ModeNotFit" for card in cards})
    core = min(asked["core"], WHOLE)
    reasons: dict[str, str] = {}
    candidates: list[Candidate] = []
    for card in reversed(cards):
        memory = asked["memory_mb"] or int(card["total_memory_mb"] * asked["memory_percent"] // WHOLE)
        if obstacle := _obstacle(card, asked["type"], memory, core, rules):
            reasons[card["id"]] = obstacle
        else:
            candidates.append((card, memory))
    chosen, in_pairs = _chosen(candidates, asked["cards"], rules.word or asked["type"], cards)
    if len(chosen) < asked["cards"]:
        counts = Counter(reasons.values())
        if in_pairs is not None or chosen:
            counts["AllocatedCardsInsufficientRequest"] = len(chosen) if in_pairs is None else in_pairs
        return Fitted(None, _sentence(counts, len(cards) if in_pairs is None else asked["cards"]), reasons)
    taken: list[Part] = [{"id": card["id"], "memory_mb": memory, "core": core, "template": asked["template"]} for card, memory in chosen]
    return Fitted([part["id"] for part in taken], None, reasons, taken)


def _checked(kind: str, given: Mapping[str, Any], fields: Mapping[str, object]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{kind}: expected a dictionary with {', '.join(fields)}; got {given!r}")
    title = f"{kind} {given.get('id', '')}".strip()
    if unknown := sorted(set(given) - set(fields)):
        raise ValueError(f"{title} has unknown fields {', '.join(unknown)}; it has {', '.join(fields)}")
    values = {**fields, **given}
    for name in set(_COUNTS) & set(values):
        if isinstance(values[name], bool) or not isinstance(values[name], int) or values[name] < 0:
            raise ValueError(f"{title}: {name} must be a whole number that is not negative; got {values[name]!r}")
    if kind == "device" and not values["id"]:
        raise ValueError("devices: every device needs an id")
    return values


def _obstacle(device: Device, kind: str, memory: int, core: int, rules: Rules) -> str:
    """Return HAMi's word for what keeps a device from giving a part, in the order in which HAMi looks; '' when nothing does."""
    total_core = WHOLE if rules.soft else device["total_core"]
    checks = (
        ("CardNotHealth", not device["healthy"]),
        ("CardTypeMismatch", device["type"] != kind),
        ("CardUuidMismatch", bool(rules.use) and device["id"] not in rules.use or device["id"] in rules.nouse),
        ("CardTimeSlicingExhausted", device["slots"] <= device["used_slots"]),
        ("ExclusiveDeviceAllocateConflict", rules.mutex and device["used_slots"] > 0),
        ("CardInsufficientMemory", device["total_memory_mb"] - device["used_memory_mb"] < memory),
        ("CardInsufficientCore", total_core - device["used_core"] < core),
        ("ExclusiveDeviceAllocateConflict", total_core == core == WHOLE and device["used_slots"] > 0),
        ("CardComputeUnitsExhausted", core == 0 and total_core == device["used_core"] != 0),
    )
    return next((word for word, met in checks if met), "")


def _chosen(candidates: list[Candidate], cards: int, word: str, devices: Sequence[Device]) -> tuple[list[Candidate], int | None]:
    """Return the candidates to take, too few of them where the request does not fit, and the number of cards in whole pairs, or None.

    Pairs (910C): only whole cards, index ÷ 2, when more than one is requested. Other chips of the 910 family where all devices have a
    network id: from the group with most candidates.
    """
    if word in _PAIRED and cards > 1:
        groups = _grouped(candidates, lambda device: device["id"] if device["index"] is None else device["index"] // 2)
        whole = [candidate for group in groups if len(group) == 2 for candidate in group]
        return whole[:cards], min(len(whole), cards)
    if word.startswith("Ascend910") and 1 < cards < len(candidates) and all(device["network_id"] is not None for device in devices):
        candidates = [candidate for group in _grouped(candidates, lambda device: device["network_id"]) for candidate in group]
    return candidates[:cards], None


def _grouped(candidates: Iterable[Candidate], key: Callable[[Device], Hashable]) -> list[list[Candidate]]:
    groups: dict[Hashable, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(key(candidate[0]), []).append(candidate)
    return sorted(groups.values(), key=len, reverse=True)


def _sentence(counts: Mapping[str, int], of: int) -> str:
    return ", ".join(sorted(f"{count}/{of} {word}" for word, count in counts.items()))


def charged(used: Mapping[str, int], core: int, memory_mb: int) -> dict[str, int]:
    """Return the usage ``{slots, core, memory_mb}`` of a card after one more container."""
    return {"slots": used["slots"] + 1, "core": used["core"] + core, "memory_mb": used["memory_mb"] + memory_mb}


def fit_all(devices: Sequence[Device], requests: Iterable[Request], rules: Rules) -> list[Fitted]:
    """Fit requests one after another, each on what the ones before left. One that does not fit takes nothing."""
    state = [dict(device) for device in devices]
    results = []
    for request in requests:
        results.append(fit(cast("list[Device]", state), request, rules))
        for part in results[-1].taken:
            device = next(device for device in state if device["id"] == part["id"])
            used = {name: cast("int", device.get(f"used_{name}", 0)) for name in ("slots", "core", "memory_mb")}
            device |= {f"used_{name}": value for name, value in charged(used, part["core"], part["memory_mb"]).items()}
    return results


def devices_of(topology: Topology, soft: bool = False, count: int = 0) -> list[Device]:
    """Return the NPUs of a host as devices, unused; ``count`` is HAMi's vDeviceCount. NPUs that HAMi does not know are left out.

    Ids are ``npu-<logic id>``, because HAMi's own come from its device plugin: the annotation hami.io/node-register-<word> of the node.
    """
    if "npus" not in topology:
        raise ValueError("devices: expected a list of devices, or the fact npu_affinity_topology, which has npus")
    return [
        {
            "id": f"npu-{npu['id']}",
            "index": npu["id"],
            "total_memory_mb": min(chip.allocatable, npu.get("memory_mib") or chip.allocatable),
            "total_core": WHOLE if soft else chip.ai_core,
            "slots": slots(chip.allocatable, tuple(template.memory for template in chip.templates), count),
            "type": chip.word,
        }
        for npu in npus_of(topology)
        if (chip := BY_NAME.get(str(npu.get("name"))))
    ]
