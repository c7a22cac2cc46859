# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that adopted work has started since: they inherited the mask of their parent, and no record has them.

Those in the group of recorded work, or descended from it, get back what that had. Where neither tells, a mask alone is no proof.
"""

from __future__ import annotations

from typing import Iterable, Iterator, NamedTuple, Tuple

from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel.masks import online, possible
from ..._kernel.processes import parent_of
from ..._state.systemd import Systemd
from ..._users.finding import members_of
from . import services, tasks
from .record import Record, all_given, identity

_SHOWN = 5


class Child(NamedTuple):
    """A process by when it was ``started``, the ``threads`` that inherited a mask, with that mask, and the CPUs ``before``."""

    started: Tuple[int, str]
    threads: tasks.Masks
    before: str


def children_of(host: Host, record: Record, released: Iterable[str]) -> dict[int, Child]:
    """Return what started on the CPUs of recorded processes, and, where no cpuset widens it, of the drop-ins of ``released`` services."""
    found: dict[int, Child] = {}
    known = {int(pid) for pid in record.recorded if pid not in record.processes or record.lives(pid)}
    if not services.has_cpusets(host):
        groups = {unit: shown.get("ControlGroup") for unit, shown in Systemd(host).show(["ControlGroup"], sorted(released)).items()}
        everything = compress(possible(host))
        for unit, group in groups.items():
            _add(host, found, known, members_of(host, group) if group else (), record.services[unit], everything)
    parents = {pid: parent_of(host, pid) for pid in _processes(host)} if record.processes else {}
    for number, entry in record.processes.items():
        if entry["cpus"]:
            below = list(_descendants(int(number), parents)) if int(number) in known else []
            _add(host, found, known, [*below, *members_of(host, entry["group"])], entry, entry["threads"].get(number, ""))
    return found


def _add(host: Host, found: dict[int, Child], known: set[int], pids: Iterable[int], entry: dict[str, object], before: str) -> None:
    for pid in pids:
        started = identity(host, pid) if pid not in known and pid not in found else None
        same = _same(host, pid, entry) if started else {}
        if started and same and before:
            found[pid] = Child(started, same, before)


def _same(host: Host, pid: int, entry: dict[str, object]) -> tasks.Masks:
    """Return the threads of a process that ask for just what an entry was given, which those in a cpuset of these CPUs do not."""
    there = online(host)
    given = [cpus for cpus in (set(expand(sets.get("cpus", ""))) for sets in all_given(entry)) if cpus and not there <= cpus]
    return {name: text for name, text in tasks.asked_for(host, pid).items() if set(expand(text)) in given}


def strangers(host: Host, record: Record, found: Iterable[int]) -> list[str]:
    """Return a sentence on processes with the mask of recorded ones whose origin neither group nor ancestry tells."""
    entries = [entry for entry in record.processes.values() if entry["cpus"]]
    ours = {*found, *map(int, record.recorded)}
    left = [pid for pid in _processes(host) if pid not in ours and any(_same(host, pid, entry) for entry in entries)] if entries else []
    shown = ", ".join("%d (%s)" % (pid, host.read("/proc/%d/comm" % pid) or "ended") for pid in left[:_SHOWN])
    more = " and %d more" % (len(left) - _SHOWN) if len(left) > _SHOWN else ""
    text = "processes %s%s have the CPUs that adopted work was given, and may be its children; taskset gives them others if they are"
    return [text % (shown, more)] if left else []


def _processes(host: Host) -> list[int]:
    return [int(name) for name in host.names("/proc", "[0-9]*") if name.isdecimal()]


def _descendants(pid: int, parents: dict[int, int]) -> Iterator[int]:
    below = {pid}
    while True:
        new = {child for child, parent in parents.items() if parent in below} - below
        if not new:
            return
        yield from sorted(new)
        below |= new
