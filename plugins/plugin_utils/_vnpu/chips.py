# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips that HAMi knows, the fixed templates into which the driver splits them (hard split), and what a container asks of HAMi.

Project-HAMi/HAMi@4707fb02 ``charts/hami/templates/scheduler/device-configmap.yaml``; ``pkg/device/ascend/device.go`` (``MutateAdmission``,
``GenerateResourceRequests``), whose words refusals have. Memory is in MB, as HAMi counts it. The templates of a driver at hand are what
``npu-smi info -t template-info`` answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict


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
