# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a job with several tasks gets, by the switches that they hang on.

Source: Ascend/mind-cluster@22bb3d98, ``internal/nslb`` and ``plugin/tor.go``. M is the number of hosts of a switch.

* single layer: the job fits one switch; the one with the fewest free hosts.
* 1.0 (two layers): a job of less than M tasks takes one switch where it can. Others take full switches first; then hosts at the same
  positions of different switches, as if these were a switch. ``large-model-schema`` fails where that is not possible, and so do jobs of it
  with less than 4 tasks that do not fit one switch; ``normal-schema`` then takes any hosts.
* 2.0: switches are free, shared or exclusive, and healthy or not. Jobs of less than M tasks take one switch: an exclusive one, an
  unhealthy shared one, a shared one, a free one. Larger ones fill free switches, and share one or two for the rest.

Where it differs: two shared switches are taken once, upstream goes on to further pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

FREE, SHARED, EXCLUSIVE = 0, 1, 2
LARGE, NORMAL = "large-model-schema", "normal-schema"
SCHEMAS = (LARGE, NORMAL)
VERSIONS = ("1.0", "2.0", "single_layer")
FILL_JOB = 4
"""Jobs of the large-model schema with fewer tasks must fit one switch."""


@dataclass
class Switch:
    """``hosts`` are all hosts in the order of their positions, ``None`` for one that is not known; ``free`` those that can take a task.

    ``shared`` is free, shared or exclusive, ``healthy`` 0 and unhealthy 1, as in the scheduler. ``spanned_by`` are the schemas of jobs
    that run on this switch and on others.
    """

    name: str
    hosts: Sequence[str | None]
    free: set[str]
    shared: int = FREE
    unhealthy: int = 0
    spanned_by: Collection[str] = ()

    def take(self, count: int | None = None) -> list[str]:
        return [host for host in self.hosts if host in self.free][:count]


def select(switches: Iterable[Switch], replicas: int, version: str, schema: str, per_switch: int, shared_switches: int = 2) -> list[str]:
    """Return the hosts for ``replicas`` tasks, switch by switch. ``ValueError`` with a sentence: not enough, or not in the right places."""
    switches = sorted(switches, key=lambda switch: switch.name)
    if version == "2.0":
        return _version_2(switches, replicas, schema, per_switch, shared_switches)
    if version == "1.0":
        return _version_1(switches, replicas, schema, per_switch)
    if replicas > per_switch:
        raise ValueError(f"job's task number is bigger than torCount: {replicas} tasks do not fit one switch of {per_switch} hosts")
    return _fill(_by_free(switches), replicas)


def _by_free(switches: Iterable[Switch], reverse: bool = False) -> list[Switch]:
    return sorted(switches, key=lambda switch: len(switch.free), reverse=reverse)


def _all(switches: Iterable[Switch]) -> list[str]:
    return [host for switch in switches for host in switch.take()]


def _fill(switches: Iterable[Switch], count: int) -> list[str]:
    """Return hosts of the first switch that has enough."""
    for switch in switches:
        if len(switch.free) >= count:
            return switch.take(count)
    raise ValueError(f"tor check failed not enough resource for job: no switch has {count} free hosts")


def _version_1(switches: Sequence[Switch], replicas: int, schema: str, per_switch: int) -> list[str]:
    compatible = {NORMAL} if schema == NORMAL else set()  # next to spanning jobs of another schema, a switch has to hold a job whole
    usable = [switch for switch in switches if set(switch.spanned_by) <= compatible or len(switch.free) >= replicas]
    try:
        return _by_position(usable, replicas, schema, per_switch)
    except ValueError:
        if schema != NORMAL:
            raise
        hosts = _all(_by_free(usable, reverse=True))
        if len(hosts) < replicas:
            raise ValueError(f"{replicas} tasks are wanted, and {len(hosts)} hosts on usable switches are free") from None
        return hosts[:replicas]


def _by_position(switches: Sequence[Switch], replicas: int, schema: str, per_switch: int) -> list[str]:
    if replicas < per_switch:
        try:
            return _fill(_by_free(switches), replicas)
        except ValueError:
            if schema == LARGE and replicas < FILL_JOB:
                raise
    row, column = divmod(replicas - 1, per_switch)
    full = [switch for switch in switches if len(switch.free) == per_switch]
    if row < len(full):
        return _all(full)[:replicas]
    rows = _logic_switches(switches, per_switch, row, column)
    if row < 1:  # the shortest row that is enough; the first one is
        return min((hosts for hosts in rows if len(hosts) >= replicas), key=len)[:replicas]
    return list(chain(*rows[:row], rows[row][: column + 1]))


def _logic_switches(switches: Sequence[Switch], per_switch: int, row: int, column: int) -> list[list[str]]:
    """Return hosts by rows of the positions that most switches have free. ``ValueError``: a position has too few."""
    positions = [
        [str(host) for switch in switches for host in switch.hosts[position : position + 1] if host in switch.free]
        for position in range(per_switch)
    ]
    positions.sort(key=len, reverse=True)
    for index, needed in ((column, row + 1), (per_switch - 1, row)):
        if len(positions[index]) < needed:
            raise ValueError(
                f"tor check failed not enough resource: {needed} hosts at the same position are needed, and position number {index + 1} of "
                f"{per_switch} has {len(positions[index])}"
            )
    return [[hosts[number] for hosts in positions if number < len(hosts)] for number in range(len(positions[0]))]


def _version_2(switches: Sequence[Switch], replicas: int, schema: str, per_switch: int, shared_switches: int) -> list[str]:
    def in_state(shared: int, unhealthy: int = 0) -> list[Switch]:
        return _by_free(switch for switch in switches if (switch.shared, switch.unhealthy) == (shared, unhealthy))

    shared, unhealthy, free = in_state(SHARED), in_state(SHARED, 1), in_state(FREE)
    if replicas < per_switch:
        try:
            return _fill([*in_state(EXCLUSIVE), *unhealthy, *shared, *free], replicas)
        except ValueError:
            if schema == LARGE and replicas < FILL_JOB:
                raise
    most_shared = sum(len(switch.free) for switch in shared[-shared_switches:])
    limit = sum(len(switch.free) for switch in free) + most_shared
    fullest = _by_free(free, reverse=True)
    if replicas > limit:
        if schema == LARGE:
            raise ValueError(f"set tor failed by not enough nodes: {replicas} tasks are wanted, free and shared switches can take {limit}")
        hosts = _all([*fullest, *unhealthy, *(switch for switch in shared if LARGE not in switch.spanned_by)])
        if len(hosts) < replicas:
            raise ValueError(f"not enough node for normal job to schedule: {replicas} tasks are wanted, and {len(hosts)} hosts may be used")
        return hosts[:replicas]
    taken: list[str] = []
    for switch in fullest:
        needed = replicas - len(taken)
        if needed < len(switch.free):
            return taken + (switch.take(needed) if needed > most_shared else _of_shared(shared, needed, shared_switches))
        taken += switch.take()
    return taken + _of_shared(shared, replicas - len(taken), shared_switches)


def _of_shared(switches: Sequence[Switch], count: int, most: int) -> list[str]:
    """Return hosts of one shared switch or ``most`` neighbours by size, the smallest that are enough: the last ``most`` are."""
    if not count:
        return []
    neighbours = (switches[first : first + width] for width in range(1, most + 1) for first in range(len(switches) - width + 1))
    return next(hosts for hosts in map(_all, neighbours) if len(hosts) >= count)[:count]
