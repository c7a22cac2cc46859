# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU lists and CPU masks in the kernel's notations.

A cpulist is the text of ``/sys/devices/system/cpu/online`` (``0-3,8``, strides as in ``0-31:2/4``); a CPU mask is the
text of ``/proc/irq/<n>/smp_affinity`` (32-bit groups of hexadecimal digits, highest first). Grammar:
Linux ``Documentation/admin-guide/kernel-parameters.rst`` (CPU lists) and ``lib/bitmap.c`` (both forms).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_PART = re.compile(r"^(\d+)(?:-(\d+)(?::(\d+)/(\d+))?)?\Z")
HIGHEST_CPU = 65535
"""No kernel has more CPUs; a larger number is a typing error, and expanding it would only fill memory."""
_MOST_NAMED = 16 * (HIGHEST_CPU + 1)
"""So often a list may name CPUs, repetitions included; expanding a longer one would take minutes."""
_LONGEST_MASK = (HIGHEST_CPU + 1) // 4
"""Hexadecimal digits of a mask; reading a longer one would take minutes."""


def expand(text: object, name: str = "cpulist") -> list[int]:
    """Return the CPUs of a cpulist as a list, in the order given and without repetitions.

    ``name`` is what the error calls the value (an option or a file). Raises ``ValueError`` naming the bad part.
    """
    try:
        return list(_expanded(str(text)))
    except ValueError as error:
        raise ValueError("%s%s" % (name, error))


@functools.lru_cache(maxsize=128)
def _expanded(text: str) -> tuple[int, ...]:
    """Return the CPUs of a cpulist. Hosts have the same few lists in hundreds of files."""
    cpus: dict[int, None] = {}
    count = 0
    for part in text.strip("\n\0 ").split(","):
        part = part.strip()
        if not part:
            if text.strip("\n\0 "):
                raise ValueError(": '%s' has an empty part; expected CPU numbers and ranges such as 0-3,8" % text)
            continue
        match = _PART.match(part)
        if not match:
            raise ValueError(": '%s' in '%s' is not a CPU number or range; expected e.g. 0-3,8" % (part, text))
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < first:
            raise ValueError(": range '%s' in '%s' runs backwards; write %d-%d" % (part, text, last, first))
        if last > HIGHEST_CPU:
            raise ValueError(": CPU %d in '%s' is beyond %d" % (last, text, HIGHEST_CPU))
        count += last - first + 1
        if count > _MOST_NAMED:
            raise ValueError(" names the same CPUs again and again: write each of them once")
        if match.group(4) is None:
            cpus.update(dict.fromkeys(range(first, last + 1)))
            continue
        used, group = int(match.group(3)), int(match.group(4))
        if not 0 < used <= group:
            raise ValueError(": stride '%s' in '%s' must use between 1 and all CPUs of its group" % (part, text))
        cpus.update(dict.fromkeys(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used))
    return tuple(cpus)


def compress(cpus: Iterable[int]) -> str:
    """Return the cpulist of CPUs in ascending order, whatever order they come in: ``{0, 1, 2, 8}`` -> ``0-2,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(start) if start == end else "%d-%d" % (start, end) for start, end in ranges)


def normalize(text: object, name: str = "cpulist") -> str:
    """Return a cpulist in the kernel's own form: ascending, ranges joined, no blanks."""
    return compress(expand(text, name))


def union(values: Iterable[str]) -> str:
    """Return the cpulist of all CPUs (or memory nodes) of several cpulists."""
    return compress({number for value in values for number in expand(value)})


def to_mask(cpus: Iterable[int]) -> str:
    """Return the CPU mask of CPUs as the kernel prints it, without leading empty groups: ``{35}`` -> ``00000008,00000000``."""
    bits = 0
    for cpu in cpus:
        bits |= 1 << cpu
    groups: list[str] = []
    while bits or not groups:
        groups.append("%08x" % (bits & 0xFFFFFFFF))
        bits >>= 32
    return ",".join(reversed(groups))


def from_mask(text: object, name: str = "CPU mask") -> set[int]:
    """Return the set of CPUs in a mask such as ``ff,00000000`` (workqueue ``cpumask``, IRQ ``smp_affinity``)."""
    groups = str(text).strip("\n\0 ").split(",")
    if sum(map(len, groups)) > _LONGEST_MASK:
        raise ValueError("%s has %d groups, and is beyond CPU %d" % (name, len(groups), HIGHEST_CPU))
    bits = 0
    for group in groups:
        try:
            value = int(group, 16)
        except ValueError:
            raise ValueError("%s: '%s' in '%s' is not a hexadecimal group" % (name, group, text))
        bits = bits << 32 | value
    return {cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1}
