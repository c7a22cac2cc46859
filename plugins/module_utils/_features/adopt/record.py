# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What adopted work was like before: a section of previous.json, by which everything is given back.

Its shape is in :mod:`.section`. ``npus`` are pairs of kind and logic id; ``cpus`` is what was written and ``before`` what was there,
as cpulists; ``mems`` are the memory nodes that a group was given, before which all were granted, or to which the memory of a process was
moved; ``folders`` were made for the drop-in of a service. ``threads`` has the CPUs that each thread had asked for, by its id. A process
whose ``cpus`` are empty was confined by its group alone, on a kernel that forgets what threads asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping

from ..._base.cpulist import expand
from ..._host.host import Host
from ..._kernel.processes import BOOT, START, stat_fields
from ..._state import previous
from . import engines, services, tasks
from .places import SECTION

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

KINDS = ("services", "containers", "processes")
Entries = Dict[str, Dict[str, Any]]


class Record:
    """The section of a host; :meth:`store` writes it to the disk.

    What is noted of work that was adopted before replaces what was ``written``, its NPUs and CPUs, and nothing else. ``masks`` has what the
    threads of the processes that were noted had asked for then.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._before = found = previous.recorded(host).get(SECTION, {})
        self.services: Entries = dict(found.get("services", {}))
        self.containers: Entries = dict(found.get("containers", {}))
        self.processes: Entries = dict(found.get("processes", {}))
        self.masks: Dict[int, tasks.Masks] = {}

    def note_service(self, unit: str, written: Mapping[str, Any]) -> None:
        known = self.services.get(unit) or {"folders": services.folders(self.host, unit)}
        self.services[unit] = dict(known, **written)

    def note_container(self, user: NpuUser, before: str, written: Mapping[str, Any]) -> None:
        key = user["container"] or ""
        first = {"engine": user["engine"], "name": user["name"], "before": before, "group": user["group"]}
        self.containers[key] = dict(self.containers.get(key, first), **written)

    def note_process(self, pid: int, title: str, written: Mapping[str, Any]) -> None:
        started, self.masks[pid] = identity(self.host, pid), tasks.asked_for(self.host, pid)
        if started:
            first = {"start": started[0], "boot": started[1], "title": title, "threads": self.masks[pid]}
            self.processes[str(pid)] = dict(self.processes.get(str(pid), first), **written)

    def former(self, pid: int) -> set[int]:
        """Return the CPUs on which a process was kept when the section was read; none where it was not."""
        before, now = (entries.get(str(pid), {}) for entries in (self._before.get("processes", {}), self.processes))
        is_same = all(before.get(key) == now.get(key) for key in ("start", "boot"))
        return set(expand(before.get("cpus", ""))) if is_same else set()

    def drop(self, keys: Mapping[str, Iterable[str]]) -> None:
        """Remove entries, ``{kind: keys}``, and store the rest."""
        for kind, names in keys.items():
            for name in names:
                getattr(self, kind).pop(name, None)
        self.store()

    def store(self) -> None:
        sections = {kind: getattr(self, kind) for kind in KINDS if getattr(self, kind)}
        previous.replace(self.host, SECTION, sections or None)

    def take_back(self) -> None:
        """Write what the section was when it was read."""
        previous.replace(self.host, SECTION, self._before or None)

    def revert(self, *keys: str) -> None:
        """Make the entries with these keys what they were when the section was read."""
        for kind in KINDS:
            entries, before = getattr(self, kind), self._before.get(kind, {})
            for key in keys:
                entries.pop(key, None)
                entries.update({key: before[key]} if key in before else {})

    def forget_ended(self) -> None:
        """Forget processes that have ended, and containers that were removed, where their engines say so."""
        for pid in [pid for pid in self.processes if not self.lives(pid)]:
            del self.processes[pid]
        for engine in sorted({entry["engine"] for entry in self.containers.values()}):
            known = engines.known(self.host, engine)
            for key in [key for key, entry in self.containers.items() if entry["engine"] == engine and known and key not in known]:
                del self.containers[key]

    def lives(self, pid: str) -> bool:
        """Whether the recorded process is the one that has this number now."""
        return identity(self.host, int(pid)) == (self.processes[pid]["start"], self.processes[pid]["boot"])


def identity(host: Host, pid: int) -> tuple[int, str] | None:
    """Return when a process was started, in clock ticks since the boot that follows; None if there is none."""
    fields = stat_fields(host, "/proc/%d" % pid)
    return (int(fields[START]), host.read(BOOT) or "") if len(fields) > START else None
