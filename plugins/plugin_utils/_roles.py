# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs of a pool take interrupts, and which run the worker, its acl_thread and its release_thread.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._machine import Card

WITH_ROLES = 5
"""The smallest pool in which all roles have CPUs of their own: two irq, one main, one acl, one release."""


class Roles(NamedTuple):
    """CPUs of the roles in pool order. ``irq`` holds the CPU of SQ first; where it holds another, that is the CPU of every CQ."""

    irq: list[int]
    main: list[int]
    acl: list[int]
    release: list[int]


def split(card: Card, pool: Sequence[int], min_cpus: int) -> Roles:
    """Return the roles by position: irq the first two, acl the last but one, release the last, main what is between.

    Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``. Smaller pools, which ``min_cpus`` has to allow, give
    each role what there is: one irq CPU, and acl, release and main together where CPUs run out.
    Raises ``ValueError`` when the pool has fewer than ``min_cpus``.
    """
    if not card.has_roles:
        return Roles([], list(pool), [], [])
    if len(pool) < min_cpus:
        raise ValueError(
            f"{card.name} has {len(pool)} CPUs. The number of CPUs is insufficient. Each NPU requires at least {min_cpus} CPUs."
        )
    if len(pool) >= WITH_ROLES:
        return Roles(list(pool[:2]), list(pool[2:-2]), [pool[-2]], [pool[-1]])
    acl = pool[-2] if len(pool) == 4 else pool[-1]
    return Roles([pool[0]], [pool[min(1, len(pool) - 1)]], [acl], [pool[-1]])


def spread(pool: Sequence[int], roles: Roles, core_of: Mapping[int, int]) -> Roles:
    """Return roles of which irq, acl and release are on cores of their own, as near to the published positions as that allows.

    In a pool of too few cores the two irq CPUs share one; in a smaller one the roles stay as they are.
    """
    if len(pool) < WITH_ROLES or not roles.irq:
        return roles
    first = pool[0]
    core = core_of.get(first, first)
    if len({core, *(core_of.get(cpu, cpu) for cpu in (roles.irq[1], roles.acl[0], roles.release[0]))}) == 4:
        return roles
    elsewhere = (cpu for cpu in pool if core_of.get(cpu, cpu) != core)
    sibling = (cpu for cpu in pool[1:] if core_of.get(cpu, cpu) == core)
    for second in [*islice(elsewhere, 1), *islice(sibling, 1)]:
        taken = {core, core_of.get(second, second)}
        last = []
        for cpu in reversed(pool):
            if core_of.get(cpu, cpu) not in taken:
                taken.add(core_of.get(cpu, cpu))
                last.append(cpu)
            if len(last) == 2:
                release, acl = last
                chosen = {first, second, acl, release}
                return Roles([first, second], [cpu for cpu in pool if cpu not in chosen], [acl], [release])
    return roles
