# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that adopted work has started since: they inherited the mask of their parent, and no record has them.

Those in the group of recorded work, or descended from it, get back what that had. Where neither tells, a mask alone is no proof.
"""

from __future__ import annotations

from typing import Collection, Iterable, Iterator, Mapping

from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel.masks import online, possible
from ..._kernel.processes import parent_of
from ..._users.finding import members_of
from . import services, tasks
from .record import SERVICE, Entry, given_cpus, kind_of, lives, pairs, pid_of, process, processes, text_of

_SHOWN = 5


def heirs(host: Host, recorded: Mapping[str, Entry], released: Collection[str], groups: services.Groups) -> dict[str, str]:
    """Return the masks to restore, by the keys of what started on the CPUs of ``released`` processes, and, where no cpuset widens it, of
    the drop-ins of released services."""
    found: dict[str, str] = {}
    known = {pid_of(key) for key, _entry in processes(recorded) if lives(host, key)}
    units = [key for key in released if kind_of(key) == SERVICE]
    for unit, group in groups.of(units).items() if units and not services.has_cpusets(host) else ():
        _add(host, found, known, members_of(host, group) if group else (), recorded[unit], compress(possible(host)))
    confined = {key: entry for key, entry in processes(recorded) if key in released and given_cpus(entry)}
    parents = {pid: parent_of(host, pid) for pid in _processes(host)} if confined else {}
    for key, entry in confined.items():
        pid = pid_of(key)
        below = _descendants(pid, parents) if pid in known else ()
        _add(host, found, known, [*below, *members_of(host, entry["group"])], entry, pairs(entry["original"]).get(str(pid), ""))
    return found


def _add(host: Host, found: dict[str, str], known: set[int], pids: Iterable[int], entry: Entry, before: str) -> None:
    for pid in pids:
        key = process(host, pid) if pid not in known else ""
        same = _same(host, pid, entry) if key and key not in found and before else []
        if same:
            found[key] = text_of({**tasks.asked_for(host, pid), **dict.fromkeys(same, before)})


def _same(host: Host, pid: int, entry: Entry) -> list[str]:
    """Return the threads of a process that ask for just what an entry was given, which those in a cpuset of these CPUs do not."""
    there = online(host)
    narrow = [cpus for cpus in given_cpus(entry) if not there <= cpus]
    return [name for name, text in tasks.asked_for(host, pid).items() if set(expand(text)) in narrow]


def strangers(host: Host, recorded: Mapping[str, Entry], released: Collection[str], found: Iterable[str]) -> list[str]:
    """Return a sentence on processes with the mask of released ones whose origin neither group nor ancestry tells."""
    confined = [entry for key, entry in processes(recorded) if key in released and given_cpus(entry)]
    ours = {pid_of(key) for key in [*found, *(key for key, _entry in processes(recorded))]}
    left = [pid for pid in _processes(host) if pid not in ours and any(_same(host, pid, entry) for entry in confined)] if confined else []
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
