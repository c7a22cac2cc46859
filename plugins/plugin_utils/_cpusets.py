# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU sets on the controller: bit masks (bit n = CPU n) to compute with, cpulists to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from itertools import chain
from operator import or_

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import HIGHEST_CPU, compress, expand

NO_NODE = -1
"""The id that stands for the CPUs of no NUMA node (a kernel without NUMA); it has no memory node to bind to."""


@lru_cache(maxsize=1024)
def mask(text: str, name: str = "cpulist") -> int:
    """Return the bit mask of a cpulist; ``name`` is what the error calls the value.

    The last 1024 results are kept, for hosts of one model have the same few dozen texts. Numbers and plain ranges are read here, because
    a fleet has thousands of texts that occur once; anything else, and what is wrong, is left to ``expand``.
    """
    bits = 0
    for part in str(text).split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or dash and not last.isdecimal():
            return mask_of(expand(text, name))
        start = int(first)
        end = int(last) if dash else start
        if not start <= end <= HIGHEST_CPU:
            return mask_of(expand(text, name))
        bits |= (1 << end - start + 1) - 1 << start
    return bits


def mask_of(cpus: Iterable[int]) -> int:
    if isinstance(cpus, list) and cpus and cpus == list(range(cpus[0], cpus[0] + len(cpus))):
        return (1 << len(cpus)) - 1 << int(cpus[0])
    return union(1 << cpu for cpu in cpus)


def union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def cpus_of(bits: int) -> list[int]:
    """Return the CPUs of a bit mask in ascending order."""
    return [cpu for first, end in _runs(bits) for cpu in range(first, end)]


def text_of(bits: int) -> str:
    """Return the cpulist of a bit mask in the kernel's form."""
    return ",".join([str(first) if first == end - 1 else f"{first}-{end - 1}" for first, end in _runs(bits)])


def _runs(bits: int) -> list[tuple[int, int]]:
    """Return the first CPU of each run of set bits, and the one after its last."""
    if not bits:
        return []
    lowest = (bits & -bits).bit_length() - 1
    if not bits & bits + (1 << lowest):
        return [(lowest, bits.bit_length())]
    digits = f"{bits >> lowest:b}"[::-1] + "0"
    runs = []
    first = 0
    while first >= 0:
        end = digits.find("0", first)
        runs.append((lowest + first, lowest + end))
        first = digits.find("1", end)
    return runs


def cut(masks: Iterable[int], sizes: Iterable[int]) -> list[int]:
    """Return the CPUs of bit masks, one after the other, in pieces of so many CPUs; the last ones are smaller where CPUs run out."""
    pieces = []
    runs = chain.from_iterable(map(_runs, masks))
    first = end = 0
    for size in sizes:
        piece = 0
        while size:
            if first == end:
                first, end = next(runs, (0, 0))
                if not end:
                    break
            taken = min(size, end - first)
            piece |= (1 << taken) - 1 << first
            first += taken
            size -= taken
        pieces.append(piece)
    return pieces


def text_in_order(cpus: list[int]) -> str:
    """Return the cpulist that :func:`expand` turns back into the same CPUs in the same order: ``[4, 5, 0]`` -> ``4-5,0``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join([str(first) if first == last else f"{first}-{last}" for first, last in runs])


def as_cpulist(value: object, name: str = "cpulist") -> str:
    """Return a cpulist, a CPU number or a list of CPU numbers as a cpulist in the kernel's form.

    Raises ``ValueError`` naming the value and the bad part of it.
    """
    if isinstance(value, str):
        return text_of(mask(value, name))
    if isinstance(value, bool | Mapping) or not isinstance(value, int | Iterable):
        raise ValueError(f"{name}: expected a cpulist such as 0-3,8, a CPU number or a list of CPU numbers; got {value!r}")
    cpus = [value] if isinstance(value, int) else list(value)
    for cpu in cpus:
        if isinstance(cpu, bool) or not isinstance(cpu, int) or not 0 <= cpu <= HIGHEST_CPU:
            raise ValueError(f"{name}: {cpu!r} is not a CPU number between 0 and {HIGHEST_CPU}")
    return str(compress(set(cpus)))
