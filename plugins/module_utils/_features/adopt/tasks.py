# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of running processes: what they may use, giving them other CPUs, and processes that adopted work has started since.

One pass over the threads of a process is not enough, because those that start meanwhile have the CPUs of the thread that starts them. So
passes are repeated until one of them finds nothing to set.

Children inherited the mask of their parent, and no record has them. Those in the group of recorded work, or descended from it, get back
what that had. Where neither tells, a mask alone is no proof.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Collection, Dict, Iterable, Iterator, Mapping, Set

from ..._base.cpulist import compress, expand
from ..._host.host import GONE, Host
from ..._kernel.interrupts import Thread
from ..._kernel.machine import machine, sets_cpus
from ..._kernel.masks import online, possible
from ..._kernel.processes import every_pid, parent_of
from ..._users.finding import members_of
from ..._users.groups import listed
from . import services
from .record import KEPT, SERVICE, given_cpus, kind_of, last, lives, pairs, pid_of, process, processes, text_of

if TYPE_CHECKING:
    from .record import Entry

Masks = Dict[str, str]
"""CPUs by the id of a thread."""
_PASSES = 10


def masks(host: Host, pid: int) -> Masks:
    """Return the CPUs that each thread of a process may use; none when it has ended."""
    threads = {name: Thread.of_process(pid, int(name), name).read(host) for name in host.names("/proc/%d/task" % pid, "[0-9]*")}
    return {name: cpus for name, cpus in threads.items() if cpus}


def asked_for(host: Host, pid: int) -> Masks:
    """Return the masks to request from the kernel for each thread to keep its CPUs."""
    return {name: Thread.of_process(pid, int(name), name).to_record(host, cpus) for name, cpus in masks(host, pid).items()}


def confine(host: Host, pid: int, cpus: set[int], former: Collection[Set[int]]) -> None:
    """Keep all threads of a process on some CPUs. One with a mask of its own keeps the part of it that lies there. Raises ``OSError``.

    ``former`` are sets on which the process was kept before, or that were handed down to it: no masks of a thread's own.
    """
    for _pass in range(_PASSES):
        current = {name: set(expand(text)) for name, text in masks(host, pid).items()}
        wrong = {name: mask for name, mask in current.items() if mask - cpus or mask in former and mask != cpus}
        if not wrong:
            return
        for name, mask in wrong.items():
            _write(host, pid, name, compress(cpus if mask in former else mask & cpus or cpus))


def restore(host: Host, pid: int, recorded: Mapping[str, str], others: str | None = None) -> None:
    """Give the threads of a process the CPUs that they had asked for, and ``others`` to those that have started since."""
    for name in masks(host, pid):
        cpus = recorded.get(name, others)
        if cpus:
            _write(host, pid, name, cpus)


def original(host: Host, key: str, before: str, entry: Entry) -> tuple[str, list[str]]:
    """See :func:`record.original`."""
    asked, recorded, pid = pairs(before), pairs(entry["original"]), pid_of(key)
    confined, allowed, remarks = given_cpus(entry), masks(host, pid), []
    moved = [name for name, cpus in asked.items() if cpus != recorded.get(name)]
    foreign = [name for name in moved if confined and not any(set(expand(allowed.get(name, ""))) <= cpus for cpus in confined)]
    if foreign:
        which = "" if foreign == moved else "%s %s of " % ("thread" if len(foreign) == 1 else "threads", ", ".join(foreign))
        remarks.append(KEPT % ("%sprocess %d of %s" % (which, pid, entry["title"]), "CPUs", last(entry)["cpus"]))
    asked.update((name, recorded.get(name) or recorded.get(str(pid)) or asked[name]) for name in moved if name not in foreign)
    return text_of(asked if confined else {**asked, "cpus": ""}), remarks  # written in any case


def _write(host: Host, pid: int, name: str, cpus: str) -> None:
    try:
        Thread.of_process(pid, int(name), name).write(host, cpus)
    except OSError as error:
        if error.errno not in GONE | {errno.EINVAL}:  # EINVAL: the cpuset has none of them; what is there is read back
            raise


def heirs(host: Host, recorded: Mapping[str, Entry], released: Collection[str], groups: services.Groups) -> dict[str, str]:
    """Return the masks to restore, by the keys of what started on the CPUs of ``released`` processes, and, where no cpuset widens it, of
    the drop-ins of released services."""
    recorded_pids = {pid_of(key) for key, _entry in processes(recorded) if lives(host, key)}
    units = [key for key in released if kind_of(key) == SERVICE]
    paths = groups.of(units) if units and not sets_cpus(machine(host)) else {}
    sources = [(members_of(host, group), recorded[unit], compress(possible(host))) for unit, group in paths.items() if group]
    confined = {key: entry for key, entry in processes(recorded) if key in released and given_cpus(entry)}
    parents = {pid: parent_of(host, pid) for pid in every_pid(host)} if confined else {}
    for key, entry in confined.items():
        pid = pid_of(key)
        below = _descendants(pid, parents) if pid in recorded_pids else ()
        sources.append(([*below, *members_of(host, entry["group"])], entry, pairs(entry["original"]).get(str(pid), "")))
    result: dict[str, str] = {}
    for pid, entry, before in ((pid, entry, before) for pids, entry, before in sources for pid in pids):
        key = process(host, pid) if pid not in recorded_pids else ""
        same = _same(host, pid, entry) if key and key not in result and before else []
        if same:
            result[key] = text_of({**asked_for(host, pid), **dict.fromkeys(same, before)})
    return result


def _same(host: Host, pid: int, entry: Entry) -> list[str]:
    """Return the threads of a process that ask for just what an entry was given, which those in a cpuset of these CPUs do not."""
    there = online(host)
    narrow = [cpus for cpus in given_cpus(entry) if not there <= cpus]
    return [name for name, text in asked_for(host, pid).items() if set(expand(text)) in narrow]


def unrecorded(host: Host, recorded: Mapping[str, Entry], released: Collection[str], inherited: Iterable[str]) -> list[str]:
    """Return a sentence on processes with the mask of released ones whose origin neither group nor ancestry tells."""
    confined = [entry for key, entry in processes(recorded) if key in released and given_cpus(entry)]
    recorded_pids = {pid_of(key) for key in [*inherited, *(key for key, _entry in processes(recorded))]}
    pids = (pid for pid in every_pid(host) if pid not in recorded_pids and any(_same(host, pid, entry) for entry in confined))
    shown = listed(["%d (%s)" % (pid, host.read("/proc/%d/comm" % pid) or "ended") for pid in pids], most=5) if confined else ""
    text = "processes %s have the CPUs that adopted work was given, and may be its children; taskset gives them others if they are"
    return [text % shown] if shown else []


def _descendants(pid: int, parents: dict[int, int]) -> Iterator[int]:
    below = {pid}
    while True:
        new = {child for child, parent in parents.items() if parent in below} - below
        if not new:
            return
        yield from sorted(new)
        below |= new
