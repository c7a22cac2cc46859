# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container asks of HAMi, read and completed as its admission does: rounded to templates (hard split), or as requested (soft split).

Project-HAMi/HAMi@4707fb02 ``pkg/device/ascend/device.go`` (``MutateAdmission``, ``GenerateResourceRequests``). Refusals have HAMi's words.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import Chip

HARD, SOFT = "hard", "hami-core"
MODES = (HARD, SOFT)
_UNIT = "the unit is MB, not bytes, so that 16Gi of memory are 16384"
_LARGEST = 2**31 - 1
_QUANTITY = re.compile(r"^(\d+)(|k|M|G|T|Ki|Mi|Gi|Ti)\Z")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def parse(count: object, memory: object = None, core: object = None, memory_factor: int = 1) -> dict[str, Any]:
    """Return ``{count, memory_mb, memory_percent, core}`` of the values of a container's resources; ``memory_mb`` 0: all of the card.

    Memory counts in units of ``memory_factor`` MB. ``ValueError`` for what HAMi drops: no number, negative, or more than 31 bits hold.
    """
    cards = _number("count", count)
    if cards < 1:
        raise ValueError(f"count: {cards} cards are none; ask for 1 or more")
    memory_mb = _number("memory", 0 if memory is None else memory) * max(memory_factor, 1)
    if memory_mb > _LARGEST:
        raise ValueError(f"memory: {memory_mb} MB are more than HAMi can count; {_UNIT}")
    return {
        "count": cards,
        "memory_mb": memory_mb,
        "memory_percent": 0 if memory_mb else 100,
        "core": _number("core", 0 if core is None else core),
    }


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
    for template in sorted(chip.templates, key=lambda template: template.memory):
        if memory <= template.memory:
            return template.memory, template.name
    if memory <= chip.capacity:
        return chip.allocatable, None
    raise ValueError(f"{chip.memory_resource} {memory} is invalid")


def admit(chip: Chip, count: int, memory_mb: int | None = None, core: int | None = None, mode: str = HARD) -> dict[str, Any]:
    """Return ``{count, memory_mb, template, core}`` with which a request goes on to the cards.

    ``memory_mb`` None: all of the card. ``ValueError`` in HAMi's words for what its admission refuses.
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


def request(chip: Chip, count: object = 1, memory: object = None, core: object = None, mode: str = HARD) -> dict[str, Any]:
    """Return ``{cards, memory_mb, memory_percent, core, type, template}`` of what a container asks for: parsed, then admitted."""
    asked = parse(count, memory, core, chip.memory_factor)
    admitted = admit(chip, asked["count"], asked["memory_mb"] if asked["memory_mb"] else None, asked["core"], mode)
    return {
        "cards": admitted["count"],
        "memory_mb": admitted["memory_mb"],
        "memory_percent": 0,
        "core": admitted["core"],
        "type": chip.word,
        "template": admitted["template"],
    }
