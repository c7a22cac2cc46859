# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m npu_affinity watch``, a service that runs on: it places work when it starts.

Programs that start, names of threads and opened device files wake it up, where the kernel tells these; so does a new cgroup, whichever
engine makes it. It reads them every 20 ms, and looks at everything when some were lost, and every minute for what nothing announces.
Without these sources, that is all: 1, 5 and 30 seconds after a new cgroup, because devices are opened later than that. It takes the host's
lock only if it has something to place, and its CPU time is bounded, however busy the host is.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import time
from typing import Dict, Iterator, List, Optional, Sequence, Set

from .._base.outside import say
from .._features.register import FEATURES
from .._features.watching import PROGRAM, Watching
from .._host.host import Host
from .._kernel.device_opens import Opens, chunks, inotify
from .._kernel.machine import CGROUPS, HIERARCHIES
from .._kernel.process_events import EXEC, Lost, ProcessEvents
from .._users.groups import of_pods

AFTER_WAKE = (1.0, 5.0, 30.0)
MINUTE = 60.0
SHARE_OF_LOOKS = 20.0
"""A look is followed by so many times its CPU time without one: 5 % of a CPU while groups come and go all the time."""
DRAIN = 0.02
"""Seconds in which events are collected: read one by one, they would cost twice as much."""
SHARE, CREDIT = 0.1, 5.0
"""Placing takes this part of a CPU while work starts all the time, besides so many seconds: the ranks of a job start together."""
_IN_CREATE = 0x100
_PLACES = ("", "/docker")
"""Where engines make groups besides slices: docker without systemd's driver."""


class Groups:
    """Tells when a cgroup is made, whichever engine makes it, by inotify(7) on the folders of slices, on cgroup v2 and v1.

    ``descriptor`` is that of inotify, -1 where the kernel has none: then the clock alone counts.
    With ``pods``, those of the kubelet count, too.
    """

    pods = False

    def __init__(self, host: Host) -> None:
        self.host = host
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = inotify(self._libc)
        self.watch()

    def watch(self) -> None:
        """Watch all slices; those that are watched already stay so."""
        for folder in self._folders() if self.descriptor >= 0 else ():
            with contextlib.suppress(UnicodeError):  # a name that this locale does not have
                self._libc.inotify_add_watch(self.descriptor, os.fsencode(self.host.path(folder)), _IN_CREATE)

    def _folders(self) -> Iterator[str]:
        tops = [CGROUPS + top for top in (*HIERARCHIES, "/cpuset")]
        for top in (top for top in tops if self.host.exists(top + "/cgroup.procs")):
            yield from (top + place for place in _PLACES if self.host.exists(top + place))
            yield from self._slices(top)

    def _slices(self, top: str) -> Iterator[str]:
        pending = [top]
        for outer in pending:
            inner = ["%s/%s" % (outer, name) for name in self.host.names(outer, "*.slice") if self.pods or not of_pods([name])]
            yield from inner
            pending += inner

    def read(self) -> bool:
        """Return whether a group was made since the last call."""
        events = list(chunks(self.descriptor))
        if events:
            self.watch()
        return bool(events)


class Schedule:
    """When to look next. Times are those of a monotonic clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._due = [now]
        self._free = now

    def wake(self, now: float) -> None:
        self._due = sorted({*self._due, *(now + after for after in AFTER_WAKE)})[: 2 * len(AFTER_WAKE)]

    def look_now(self, now: float) -> None:
        self._due = [now, *(due for due in self._due if due > now)]

    def looked(self, now: float, cost: float) -> None:
        """Note a look that has ended and took ``cost`` seconds of a CPU."""
        self._free = now + SHARE_OF_LOOKS * cost
        self._due = [due for due in self._due if due > now] or [now + MINUTE]

    def pause(self, now: float) -> float:
        """Return how long to wait for the next look; 0 when it is due."""
        return max(0.0, min(self._due[0], now + MINUTE) - now, self._free - now)


class Budget:
    """The CPU time that placing may take."""

    def __init__(self, now: float) -> None:
        self._used, self._since = 0.0, now

    def spent(self, now: float, cost: float) -> None:
        self._used = max(0.0, self._used - SHARE * (now - self._since)) + cost
        self._since = now

    def pause(self, now: float) -> float:
        """Return how long to wait before the next placing, 0 for not at all."""
        return max(0.0, (self._used - CREDIT) / SHARE - (now - self._since))


def parts(host: Host) -> List[Watching]:
    return [feature.watch(host) for feature in FEATURES.values() if feature.watch]


class Watch:
    """The sources of one host, and the parts of features that place what they tell."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.parts = parts(host)
        self.processes = ProcessEvents(host)
        self.opens = Opens(host)
        self.groups = Groups(host)
        self.schedule = Schedule(time.monotonic())
        self.budget = Budget(time.monotonic())

    def sources(self) -> str:
        active = ["programs that start"] * (self.processes.descriptor >= 0) + ["device files"] * bool(self.opens.descriptors)
        active += ["new cgroups" if self.groups.descriptor >= 0 else "the clock"]
        return "; ".join(filter(None, ["Watches " + " and ".join(active), self.processes.why, self.opens.why]))

    def run(self) -> None:
        while True:
            pause = self.schedule.pause(time.monotonic())
            if pause > 0:
                self.wait(pause)
            elif not self.look():
                return

    def look(self) -> bool:
        """Look at everything, and return whether a feature is on."""
        before = time.process_time()
        self.opens.watch()
        on = [part.look() for part in self.parts]
        if any(part.pods for part in self.parts) and not self.groups.pods:
            self.groups.pods = True
            self.groups.watch()
        self.schedule.looked(time.monotonic(), time.process_time() - before)
        if any(part.again for part in self.parts):
            self.schedule.wake(time.monotonic())
        return any(on)

    def wait(self, seconds: float) -> None:
        """Wait for events, at most some seconds, and place what they tell."""
        by_descriptor = {part.descriptor: part for part in self.parts if part.descriptor >= 0}
        descriptors = [number for number in (self.processes.descriptor, self.groups.descriptor, *self.opens.descriptors) if number >= 0]
        ready = select.select([*descriptors, *by_descriptor], [], [], seconds)[0]
        if not ready:
            return
        for descriptor in by_descriptor.keys() & set(ready):  # at once: a container starts in milliseconds
            if by_descriptor[descriptor].announced():
                self.schedule.wake(time.monotonic())
        if not {self.processes.descriptor, *self.opens.descriptors}.isdisjoint(ready):
            time.sleep(DRAIN)  # an opened device ends the rest of the pause where CPUs are to be taken back for it
            quick = self.opens.descriptors if any(part.is_urgent for part in self.parts) else []
            select.select(quick, [], [], self.budget.pause(time.monotonic()))
            ready = select.select(descriptors, [], [], 0)[0]
        births: Dict[int, Optional[Set[int]]] = {}
        is_lost = self.processes.descriptor in ready and not self._read_processes(births)
        opened, others = self.opens.read() if set(ready).intersection(self.opens.descriptors) else (set(), False)
        births.update(dict.fromkeys(opened))
        if is_lost or others:
            self.schedule.look_now(time.monotonic())
            for part in self.parts:
                if part.is_urgent:
                    part.look()
        if self.groups.descriptor in ready and self.groups.read():
            self.schedule.wake(time.monotonic())
        if births:
            before = time.process_time()
            for part in self.parts:
                if part.born(births):
                    self.schedule.wake(time.monotonic())
            self.budget.spent(time.monotonic(), time.process_time() - before)

    def _read_processes(self, births: Dict[int, Optional[Set[int]]]) -> bool:
        """Note the processes and threads to place, and return whether the events were all there."""
        try:
            events = self.processes.read()
        except Lost:
            return False
        for event in events:
            if event.what == EXEC:
                self.opens.watch_of(event.process)
                group = self._group_of(event.process)
                if any(part.concerns(group) for part in self.parts):
                    births[event.process] = None
            elif any(part.knows(event.process) for part in self.parts):
                threads = births.setdefault(event.process, set())
                if threads is not None:
                    threads.add(event.thread)
        return True

    def _group_of(self, pid: int) -> str:
        """Return the text of ``cgroup`` of a process, in half the time that :meth:`Host.read` takes; '' where it has ended."""
        try:
            descriptor = os.open(self.host.path("/proc/%d/cgroup" % pid), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.read(descriptor, 1 << 14).decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(descriptor)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Watch until nothing is to be placed any more, and then return 0."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Place what uses NPUs when it starts.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    parser.add_argument("--end", action="store_true", help="leave the host in a state that needs no watcher")
    options = parser.parse_args(argv)
    if options.end:
        for part in parts(Host(options.root)):
            part.end()
        return 0
    watch = Watch(Host(options.root))
    say(watch.sources())
    watch.run()
    say("No feature of this host places what starts later.")
    return 0
