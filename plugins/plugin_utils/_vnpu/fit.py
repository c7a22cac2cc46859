# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cards can take a request for parts of NPUs: HAMi's rules, in its order and its words.

Project-HAMi/HAMi@4707fb02 ``pkg/device/ascend/device.go`` (``Fit``). Where HAMi leaves the order to chance (groups of the same size), the
group that was met first goes first, so the same input always has the same result.

A device is ``{id, index, total_memory_mb, used_memory_mb, total_core, used_core, slots, used_slots, type, healthy, network_id}``, a
request ``{cards, memory_mb, memory_percent, core, type, template}``: memory in MB, ``memory_mb`` 0 means ``memory_percent`` of the card;
``core`` is in percent in soft mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import CHIPS, chip_of, slots

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

Device = Mapping[str, Any]
Request = Mapping[str, Any]

_DEVICE = {
    "id": None,
    "index": None,
    "total_memory_mb": None,
    "used_memory_mb": 0,
    "total_core": 100,
    "used_core": 0,
    "slots": 1,
    "used_slots": 0,
    "type": "",
    "healthy": True,
    "network_id": None,
}
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

    ``reasons`` is the word for every device that was passed over; ``taken`` is ``[{id, memory_mb, core, template}]``, what each gives.
    """

    devices: list[str] | None
    reason: str | None
    reasons: dict[str, str] = field(default_factory=dict)
    taken: list[dict[str, Any]] = field(default_factory=list)


def fit(devices: Sequence[Device], request: Request, rules: Rules) -> Fitted:
    """Return where a request fits. ``ValueError`` for a device or a request that is none."""
    known = [_checked("device", device, _DEVICE) for device in devices]
    asked = _checked("request", request, _REQUEST)
    if asked["cards"] < 1:
        raise ValueError(f"request: expected 1 or more cards; got {asked['cards']}")
    if len({device["id"] for device in known}) < len(known):
        raise ValueError("devices: two of them have the same id; every device needs one of its own")
    if rules.soft and not rules.node_soft:
        return Fitted(None, _sentence({"ModeNotFit": 1}, len(known)), {device["id"]: "ModeNotFit" for device in known})
    core = min(asked["core"], WHOLE)
    reasons: dict[str, str] = {}
    candidates: list[dict[str, Any]] = []
    for device in reversed(known):
        memory = asked["memory_mb"] or int(device["total_memory_mb"] * asked["memory_percent"] // WHOLE)
        if why := _obstacle(device, asked["type"], memory, core, rules):
            reasons[device["id"]] = why
        else:
            candidates.append({"device": device, "memory_mb": memory, "core": core})
    chosen, counted = _chosen(candidates, asked["cards"], rules.word or asked["type"], known)
    if len(chosen) < asked["cards"]:
        found = {word: list(reasons.values()).count(word) for word in reasons.values()}
        if counted is not None or chosen:
            found["AllocatedCardsInsufficientRequest"] = len(chosen) if counted is None else counted
        return Fitted(None, _sentence(found, asked["cards"] if counted is not None else len(known)), reasons)
    parts = ("memory_mb", "core")
    taken = [{"id": entry["device"]["id"], **{part: entry[part] for part in parts}, "template": asked["template"]} for entry in chosen]
    return Fitted([entry["id"] for entry in taken], None, reasons, taken)


def _checked(kind: str, given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
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
    """Return HAMi's word for what keeps a device from taking a part, in the order in which HAMi looks; '' when nothing does."""
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


def _chosen(candidates: list[dict[str, Any]], cards: int, word: str, devices: Sequence[Device]) -> tuple[list[dict[str, Any]], int | None]:
    """Return the candidates to take, too few of them where the request does not fit, and the number of cards in whole pairs, or None.

    Pairs (910C): only whole cards, index ÷ 2, when more than one is requested. Other chips of the 910 family where all devices have a
    network id: from the group with most candidates.
    """
    if word in _PAIRED and cards > 1:
        groups = _grouped(candidates, lambda device: device["index"] // 2 if device["index"] is not None else device["id"])
        whole = [entry for group in groups if len(group) == 2 for entry in group]
        return whole[:cards], min(len(whole), cards)
    if word.startswith("Ascend910") and 1 < cards < len(candidates) and all(device["network_id"] is not None for device in devices):
        candidates = [entry for group in _grouped(candidates, lambda device: device["network_id"]) for entry in group]
    return candidates[:cards], None


def _grouped(candidates: Iterable[dict[str, Any]], key: Any) -> list[list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for entry in candidates:
        groups.setdefault(key(entry["device"]), []).append(entry)
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
        result = fit(state, request, rules)
        for part in result.taken:
            device = next(device for device in state if device["id"] == part["id"])
            used = {name: device.get(f"used_{name}", 0) for name in ("slots", "core", "memory_mb")}
            device.update({f"used_{name}": value for name, value in charged(used, part["core"], part["memory_mb"]).items()})
        results.append(result)
    return results


def devices_of(topology: Topology, soft: bool = False, count: int = 0) -> list[dict[str, Any]]:
    """Return the NPUs of a host as devices, unused; ``count`` is HAMi's vDeviceCount. NPUs that HAMi does not know are left out.

    Ids are ``npu-<logic id>``, because HAMi's own come from its device plugin: the annotation hami.io/node-register-<word> of the node.
    """
    if "npus" not in topology:
        raise ValueError("devices: expected a list of devices, or the fact npu_affinity_topology, which has npus")
    found = []
    for npu in topology["npus"]:
        try:
            chip = chip_of(str(npu.get("name"))) if npu.get("kind", "npu") == "npu" else None
        except ValueError:
            chip = None
        if chip is None:
            continue
        found.append(
            {
                "id": f"npu-{npu['id']}",
                "index": npu["id"],
                "total_memory_mb": min(chip.allocatable, npu.get("memory_mib") or chip.allocatable),
                "used_memory_mb": 0,
                "total_core": WHOLE if soft else chip.ai_core,
                "used_core": 0,
                "slots": slots(chip.allocatable, tuple(template.memory for template in chip.templates), count),
                "used_slots": 0,
                "type": chip.word,
                "healthy": True,
            }
        )
    return found
