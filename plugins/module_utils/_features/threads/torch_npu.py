# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``CPU_AFFINITY_CONF``, by which torch_npu places threads and interrupts itself, read as torch_npu reads it. Looks at no host.

Ascend/pytorch@9e73e708a ``NPUAffinityController.cpp`` and ``NPUInterruptAffinity.cpp``: a mode, ``2`` or ``mode:2`` (0 is off), then ranges
``npu<N>:a-b`` and ``npu<N>:c`` and switches such as ``force:1``. N counts the visible devices. Several ranges of a device are a union from
26.1.0 on; before, the last one wins. A device without a range has its part of the online CPUs, divided by the number of visible devices.
"""

from __future__ import annotations

import re
from typing import Collection, Mapping, NamedTuple, Sequence

NAME = "CPU_AFFINITY_CONF"
JOINS_RANGES = (26, 1)
"""The first version that takes several ranges of a device together."""
READINGS = ((0,), JOINS_RANGES)
"""A version before that one, and that one: which one runs, nothing on the host tells."""
BIND_IRQ = "bind_irq"
"""The switch by which torch_npu moves interrupts."""
MOST_CPUS = 65535
"""No machine has more; what a typing error asks for beyond is not looked at."""
_MODE = re.compile(r"\s*(?:mode:)?\s*(\d+)\s*\Z")
_RANGE = re.compile(r"npu([0-9]{1,2}):(\d+)(?:-(\d+))?\Z")
_SWITCH = re.compile(r"([a-z_]+):(\d+)\Z")
_VISIBLE = re.compile(r"ASCEND_RT_VISIBLE_DEVICES=\s*(\d+(?:\s*,\s*\d+)*)\s*\Z")


class Setting(NamedTuple):
    """What the text says: ``ranges`` has the first and last CPUs by visible device, ``switches`` those that are on."""

    ranges: Mapping[int, Sequence[tuple[int, int]]]
    switches: frozenset[str]


def setting(environment: Sequence[str]) -> tuple[str, Setting] | None:
    """Return the word ``CPU_AFFINITY_CONF=…`` of an environment and what it says; None where torch_npu binds nothing by it."""
    for word in environment:
        name, _equals, text = word.partition("=")
        mode, *parts = text.split(",")
        match = _MODE.match(mode)
        if name == NAME and match:
            return (word, _read([part.strip() for part in parts])) if int(match.group(1)) else None
    return None


def _read(parts: Sequence[str]) -> Setting:
    ranges: dict[int, list[tuple[int, int]]] = {}
    for number, first, last in (match.groups() for match in map(_RANGE.match, parts) if match):
        ranges.setdefault(int(number), []).append((int(first), int(last or first)))
    switches = (match.groups() for match in map(_SWITCH.match, parts) if match)
    return Setting(ranges, frozenset(name for name, value in switches if int(value)))


def cpus_of(parsed: Setting, number: int, visible: int, online: Collection[int], version: tuple[int, ...]) -> set[int] | None:
    """Return the CPUs of a visible device by its number; None where torch_npu asks the driver for them (``npu_affine``).

    ``visible`` is how many devices the process sees, ``version`` that of torch_npu.
    """
    ranges = parsed.ranges.get(number, ())
    if not ranges:
        size = len(online) // visible
        return None if "npu_affine" in parsed.switches else set(sorted(online)[number * size : (number + 1) * size])
    counted = ranges if version >= JOINS_RANGES else ranges[-1:]
    return {cpu for first, last in counted for cpu in range(first, min(last, MOST_CPUS) + 1)}


def visible_ids(environment: Sequence[str]) -> list[int]:
    """Return the logic ids of the NPUs that a process sees, in its order; none where its environment does not say."""
    lists = [match.group(1) for match in map(_VISIBLE.match, environment) if match]
    return [int(number) for number in lists[-1].split(",")] if lists else []
