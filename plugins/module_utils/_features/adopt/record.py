# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What adopted work was like before: a section of previous.json, by which everything is given back.

Its shape is in :mod:`.section`. ``npus`` are pairs of kind and logic id; ``cpus`` is what was given last and ``before`` what was there,
as cpulists; ``mems`` are the memory nodes that a group was given, before which all were granted, or to which the memory of a process was
moved. ``given`` are the sets that were given before and may still be in force, because none was confirmed since: a run can be killed, and
an engine can refuse. ``folders`` were made for the drop-in of a service, and ``foreign`` is what somebody else had in its place.
``threads`` has the CPUs that each thread had asked for, by its id, and ``group`` where a process was. A process whose ``cpus`` are empty
was confined by its group alone, on a kernel that forgets what threads asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping

from ..._base.cpulist import expand
from ..._host.host import Host
from ..._kernel.processes import BOOT, START
from ..._state import previous
from ..._users.engines import CRI, stores
from ..._users.finding import members_of
from . import services, tasks
from .places import SECTION

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

KINDS = ("services", "containers", "processes")
Entries = Dict[str, Dict[str, Any]]
_SETS = ("cpus", "mems")


def all_given(entry: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return every set of an entry that may be in force, the last one first."""
    return [{kind: one[kind] for kind in _SETS if one.get(kind)} for one in (entry, *entry.get("given", ()))]


def _given(entry: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry that is given another set, which those before it precede until it is confirmed."""
    before = all_given(entry) if "cpus" in entry else []
    now = {kind: written[kind] for kind in _SETS if written.get(kind)}
    left = [one for one in before if one != now]
    rest = {name: value for name, value in entry.items() if name not in (*_SETS, "given")}
    return dict(rest, **written, **({"given": left} if left else {}))


class Record:
    """The section of a host; :meth:`store` writes it to the disk.

    What is noted of work that was adopted before adds what it is given, and replaces its NPUs and nothing else. ``masks`` has what the
    threads of the processes that were noted had asked for then.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._before = found = previous.recorded(host).get(SECTION, {})
        self.services: Entries = dict(found.get("services", {}))
        self.containers: Entries = dict(found.get("containers", {}))
        self.processes: Entries = dict(found.get("processes", {}))
        self.recorded = frozenset(self.processes)
        self.masks: Dict[int, tasks.Masks] = {}

    def note_service(self, unit: str, written: Mapping[str, Any]) -> None:
        known = self.services.get(unit) or services.first(self.host, unit)
        self.services[unit] = _given(known, written)

    def note_container(self, user: NpuUser, engine: str, before: str, written: Mapping[str, Any]) -> None:
        key = user["container"] or ""
        first = {"engine": engine, "name": user["name"], "before": before, "group": user["group"]}
        self.containers[key] = _given(self.containers.get(key, first), written)

    def note_process(self, pid: int, user: NpuUser, title: str, written: Mapping[str, Any]) -> None:
        """Note a process, unless it is another one than was looked at and has its number."""
        started = identity(self.host, pid)
        seen = next((process["start"] for process in user["processes"] if process["pid"] == pid), None)
        if started and seen in (None, started[0]):
            self.masks[pid] = tasks.asked_for(self.host, pid)
            first = {"start": started[0], "boot": started[1], "title": title, "threads": self.masks[pid], "group": user["group"]}
            self.processes[str(pid)] = _given(self.processes.get(str(pid), first) if self.lives(str(pid)) else first, written)

    def former(self, pid: int) -> list[set[int]]:
        """Return the sets of CPUs on which a process was kept, or may have been, when the section was read."""
        before, now = (entries.get(str(pid), {}) for entries in (self._before.get("processes", {}), self.processes))
        is_same = all(before.get(key) == now.get(key) for key in ("start", "boot"))
        return [set(expand(given["cpus"])) for given in all_given(before) if given] if is_same else []

    def of_pods(self) -> list[str]:
        """Return the keys of the containers of pods, and of the processes in them."""
        groups = {entry["group"]: key for key, entry in self.containers.items() if entry["engine"] == CRI}
        return [*groups.values(), *(pid for pid, entry in self.processes.items() if entry["group"] in groups)]

    def is_rank(self, pid: str) -> bool:
        """Whether a process has CPUs of its own within those of its service or container."""
        return "rank" in self.processes.get(pid, {})

    def confirm(self, *keys: str) -> None:
        """Note that what these entries were given last is in force."""
        for entries in (self.services, self.containers, self.processes):
            for key in keys:
                if key in entries:
                    entries[key] = {name: value for name, value in entries[key].items() if name != "given"}

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
        """Forget processes that have ended, and containers that were removed: they have no process, and are in no store of their engine."""
        for pid in [pid for pid in self.processes if not self.lives(pid)]:
            del self.processes[pid]
        for key, entry in list(self.containers.items()):
            if not (members_of(self.host, entry["group"]) or stores(self.host, entry["engine"], key)):
                del self.containers[key]

    def lives(self, pid: str) -> bool:
        """Whether the recorded process is the one that has this number now."""
        entry = self.processes.get(pid)
        return entry is not None and identity(self.host, int(pid)) == (entry["start"], entry["boot"])


def identity(host: Host, pid: int) -> tuple[int, str] | None:
    """Return when a process was started, in clock ticks since the boot that follows; None if there is none. Raises ``ValueError`` where
    that cannot be read, which does not mean that it has ended."""
    fields = (host.text("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()
    return (int(fields[START]), host.read(BOOT) or "") if len(fields) > START else None
