# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAMi's rules: its chips and their templates, what a container asks for, and which cards can take that, in its order and its words.

Project-HAMi/HAMi@4707fb02 ``charts/hami/templates/scheduler/device-configmap.yaml`` and ``pkg/device/ascend/device.go``
(``MutateAdmission``, ``GenerateResourceRequests``, ``Fit``). Memory is in MB, as HAMi counts it. The templates of a driver at hand are what
``npu-smi info -t template-info`` answers. Where HAMi leaves the order to chance (groups of the same size), the group that was met first
goes first, so the same input always has the same result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import npus_of


@dataclass(frozen=True)
class Template:
    """A part of a chip: ``memory`` in MB, numbers of AI cores and AI CPUs (None: not stated)."""

    name: str
    memory: int
    ai_core: int
    ai_cpu: int | None = None


@dataclass(frozen=True)
class Chip:
    """A chip: ``name`` as npu-smi prints it, ``word`` as HAMi's resources have it.

    ``allocatable`` MB can be handed out of ``capacity`` MB; ``templates`` ascend by memory. ``pairs``: both dies of a card are handed out
    together. ``core_in_plugin``: whether the device plugin's own configuration offers ``-core``, as HAMi's chart does for every chip.
    """

    name: str
    word: str
    allocatable: int
    capacity: int
    ai_core: int
    ai_cpu: int | None
    templates: tuple[Template, ...]
    memory_factor: int = 1
    pairs: bool = False
    core_in_plugin: bool = False

    @property
    def resource(self) -> str:
        return f"huawei.com/{self.word}"

    @property
    def memory_resource(self) -> str:
        return f"{self.resource}-memory"

    @property
    def core_resource(self) -> str:
        return f"{self.resource}-core"


_QUARTER_AND_HALF = (Template("vir05_1c_16g", 16384, 5, 1), Template("vir10_3c_32g", 32768, 10, 3))
_OF_32_GB = (Template("vir05_1c_8g", 8192, 5, 1), Template("vir10_3c_16g", 16384, 10, 3))
_OF_910A = (Template("vir02", 2184, 2), Template("vir04", 4369, 4), Template("vir08", 8738, 8), Template("vir16", 17476, 16))
_OF_910B2 = (Template("vir03_1c_8g", 8192, 3, 1), Template("vir06_1c_16g", 16384, 6, 1), Template("vir12_3c_32g", 32768, 12, 3))
_OF_310P = (Template("vir01", 3072, 1, 1), Template("vir02", 6144, 2, 2), Template("vir04", 12288, 4, 4))
CHIPS = (
    Chip("910A", "Ascend910A", 32768, 32768, 30, None, _OF_910A),
    Chip("910B2", "Ascend910B2", 65536, 65536, 24, 6, _OF_910B2),
    Chip("910B3", "Ascend910B3", 65536, 65536, 20, 7, _QUARTER_AND_HALF, core_in_plugin=True),
    Chip("910B4-1", "Ascend910B4-1", 65536, 65536, 20, 7, _QUARTER_AND_HALF),
    Chip("910B4", "Ascend910B4", 32768, 32768, 20, 7, _OF_32_GB),
    Chip("310P3", "Ascend310P", 21527, 24576, 8, 7, _OF_310P),
    Chip("Ascend910", "Ascend910C", 65536, 65536, 20, 7, _QUARTER_AND_HALF, pairs=True, core_in_plugin=True),
)
BY_NAME = {name: chip for chip in CHIPS for name in (chip.name, chip.word)}


def chip_of(name: str) -> Chip:
    """Return the chip of a name (``910B3``) or a word (``Ascend910B3``). ``ValueError`` for one that HAMi does not know."""
    if name not in BY_NAME:
        chips = ", ".join(f"{chip.name} ({chip.word})" for chip in CHIPS)
        raise ValueError(f"chip: HAMi has no templates and resources for '{name}'; it knows {chips}")
    return BY_NAME[name]


def slots(memory: int, templates: tuple[int, ...], count: int = 0) -> int:
    """Return how many containers may share a chip: ``count`` where it is set, else memory ÷ smallest template, else 1. Memory in MB."""
    return count if count > 0 else memory // min(templates) if templates else 1


HARD, SOFT = "hard", "hami-core"
MODES = (HARD, SOFT)
_UNIT = "the unit is MB, not bytes, so that 16Gi of memory are 16384"
_LARGEST = 2**31 - 1
_QUANTITY = re.compile(r"^(\d+)(|k|M|G|T|Ki|Mi|Gi|Ti)\Z")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Request(TypedDict, total=False):
    """What a container asks for: memory in MB, of which 0 means ``memory_percent`` of the card; ``core`` is in percent in soft mode."""

    cards: int
    memory_mb: int
    memory_percent: int
    core: int
    type: str
    template: str | None


class Admitted(TypedDict):
    count: int
    memory_mb: int
    template: str | None
    core: int


def parse(count: object, memory: object = None, core: object = None, memory_factor: int = 1) -> dict[str, int]:
    """Return ``{count, memory_mb, memory_percent, core}`` of the values of a container's resources; ``memory_mb`` 0: all of the card.

    Memory counts in units of ``memory_factor`` MB. ``ValueError`` for what HAMi drops: no number, negative, or more than 31 bits hold.
    """
    cards = _number("count", count)
    if cards < 1:
        raise ValueError(f"count: expected 1 or more cards; got {cards}")
    memory_mb = _number("memory", 0 if memory is None else memory) * max(memory_factor, 1)
    if memory_mb > _LARGEST:
        raise ValueError(f"memory: {memory_mb} MB are more than HAMi can count; {_UNIT}")
    compute = _number("core", 0 if core is None else core)
    return {"count": cards, "memory_mb": memory_mb, "memory_percent": 0 if memory_mb else 100, "core": compute}


def _number(name: str, value: object) -> int:
    """Return a whole number from 0 up to what 31 bits hold, from a number or a Kubernetes quantity such as ``16384`` or ``16Ki``."""
    match = None if isinstance(value, bool) or not isinstance(value, int | str) else _QUANTITY.match(str(value).strip())
    if not match:
        raise ValueError(f"{name}: expected a whole number that is not negative; got {value!r}")
    number = int(match[1]) * _UNITS[match[2]]
    if number > _LARGEST:
        hint = f"; {_UNIT}" if name == "memory" else ""
        raise ValueError(f"{name}: {value} is {number}, more than HAMi can count ({_LARGEST}){hint}")
    return number


def rounded(chip: Chip, memory: int) -> tuple[int, str | None]:
    """Return the memory in MB and the template that a request in hard mode gets: the smallest that suffices, else the whole card (None)."""
    if template := next((template for template in chip.templates if memory <= template.memory), None):
        return template.memory, template.name
    if memory > chip.capacity:
        raise ValueError(f"{chip.memory_resource} {memory} is invalid")
    return chip.allocatable, None


def admit(chip: Chip, count: int, memory_mb: int | None = None, core: int | None = None, mode: str = HARD) -> Admitted:
    """Return with what a request goes on to the cards; ``memory_mb`` None: all of the card.

    ``ValueError`` in HAMi's words for what its admission refuses.
    """
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {' or '.join(MODES)}; got {mode!r}")
    cards = 2 if chip.pairs and count == 1 else count
    if chip.pairs and cards % 2:
        raise ValueError(f"{chip.word} device request must be 1 or 2*n, got {count}")
    if core and mode != SOFT:
        raise ValueError(f"{chip.core_resource} is only supported in hami-core (soft split) mode")
    memory, template = chip.allocatable, None
    if memory_mb is not None and mode == SOFT:
        memory = memory_mb
    elif memory_mb is not None:
        memory, template = rounded(chip, memory_mb)
    if count > 1 and mode != SOFT and memory != chip.allocatable:
        raise ValueError("vNPU not supported for multiple devices")
    return {"count": cards, "memory_mb": memory, "template": template, "core": core or 0}


def requested(chip: Chip, count: object = 1, memory: object = None, core: object = None, mode: str = HARD) -> Request:
    """Return what a container asks for, parsed and admitted."""
    asked = parse(count, memory, core, chip.memory_factor)
    admitted = admit(chip, asked["count"], asked["memory_mb"] or None, asked["core"], mode)
    cards, memory_mb, template, compute = admitted["count"], admitted["memory_mb"], admitted["template"], admitted["core"]
    return Request(cards=cards, memory_mb=memory_mb, memory_percent=0, core=compute, type=chip.word, template=template)


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
