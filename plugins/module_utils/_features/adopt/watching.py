# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adopt work that starts later: ``python3 -m npu_affinity adopt``, a service that runs on.

A new cgroup wakes it up, whichever engine makes it (inotify on the folders of slices, on cgroup v2 and v1). Devices are opened later than
that, so it looks again after 1, 5 and 30 seconds, and every minute for work that nothing announces. Containers of pods are announced before
they start (:mod:`.starting`). It takes the host's lock only if there is something to adopt. Its looks take a bounded part of one CPU,
however busy the host is.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import time
from typing import Any, Container, Iterable, Iterator, Mapping, Sequence

from ..._state.diffs import diffs
from ..._host.host import CommandError, Host
from ..._kernel.machine import CGROUPS, HIERARCHIES
from ..._base.fitting import SWITCHES
from ..._base.outside import say
from ..._state.plan_file import PATH as PLAN
from ..._base.findings import with_lost
from ..._state.plan_file import read
from ..._state.lock import changing
from ..._state.log import Change, log_change
from ..._base.table import count
from ..._users.finding import users
from ..._users.groups import of_pods
from . import services
from .adopting import Adoption
from .choosing import NOTHING
from .engines import program_of
from .starting import Announcements, bind, waiting
from .target import ADOPTED, CONTAINER, FAILED, REFUSED, SERVICE, Target

PROGRAM = "npu_affinity adopt"
WITHIN = 3600.0
AFTER_WAKE = (1.0, 5.0, 30.0)
EVERY = 60.0
SHARE = 20.0
"""A look is followed by so many times its CPU time without one: 5 % of a CPU while groups come and go all the time."""
_IN_CREATE, _IN_CLOEXEC, _IN_NONBLOCK = 0x100, 0o2000000, 0o4000
_PLACES = ("", "/docker")
"""Where engines make groups besides slices: docker without systemd's driver."""


class Wakes:
    """Tells when a cgroup is made. ``descriptor`` is that of inotify(7), -1 where the kernel has none: then the clock alone counts.

    With ``pods``, those of the kubelet count, too, and ``announcements`` has the containers that the runtime of pods created.
    """

    def __init__(self, host: Host, pods: bool = False) -> None:
        self.host = host
        self.pods = pods
        self.announcements = Announcements(host)
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._library.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        self.watch()

    def watch(self) -> None:
        """Watch all slices; those that are watched already stay so."""
        for folder in self._folders() if self.descriptor >= 0 else ():
            with contextlib.suppress(UnicodeError):  # a name that this locale does not have
                self._library.inotify_add_watch(self.descriptor, os.fsencode(self.host.path(folder)), _IN_CREATE)

    def _folders(self) -> Iterator[str]:
        tops = [CGROUPS + top for top in (*HIERARCHIES, "/cpuset")]
        for top in (top for top in tops if self.host.exists(top + "/cgroup.procs")):
            yield from (top + place for place in _PLACES if self.host.exists(top + place))
            yield from self._slices(top)

    def _slices(self, top: str) -> Iterator[str]:
        left = [top]
        while left:
            outer = left.pop()
            inner = ["%s/%s" % (outer, name) for name in self.host.names(outer, "*.slice") if self.pods or not of_pods([name])]
            yield from inner
            left += inner

    def wait(self, seconds: float) -> bool:
        """Wait until a group or container is made, and return whether one was, or until the time is over."""
        if self.pods:
            self.announcements.start()
        descriptors = [number for number in (self.descriptor, self.announcements.descriptor) if number >= 0]
        ready = select.select(descriptors, [], [], seconds)[0]
        while self.descriptor in ready:
            try:
                if not os.read(self.descriptor, 1 << 16):
                    break
            except BlockingIOError:
                break
        if self.descriptor in ready:
            self.watch()
        return bool(ready)


class Schedule:
    """When to look next. Times are those of a monotonic clock, in seconds."""

    def __init__(self, now: float) -> None:
        self._due = [now]
        self._free = now

    def wake(self, now: float) -> None:
        self._due = sorted({*self._due, *(now + after for after in AFTER_WAKE)})[: 2 * len(AFTER_WAKE)]

    def looked(self, now: float, cost: float) -> None:
        """Note a look that has ended and took ``cost`` seconds of a CPU."""
        self._free = now + SHARE * cost
        self._due = [due for due in self._due if due > now] or [now + EVERY]

    def pause(self, now: float) -> float:
        """Return how long to wait for the next look; 0 when it is due."""
        return max(0.0, min(self._due[0], now + EVERY) - now, self._free - now)


class Tries:
    """How often each object was given its CPUs. One that does not keep them is left alone; with a limit of 0 none is.

    ``failures`` says why the last try failed, '' where it did not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: dict[str, list[float]] = {}
        self.failures: dict[str, str] = {}

    def are_over(self, key: str) -> bool:
        """Whether an object was given its CPUs so often within an hour that it is left alone, which it is until it ends."""
        times = self._times.get(key, [])
        return 0 < self.limit <= len(times) and times[-1] - times[-self.limit] < WITHIN

    def note(self, key: str, now: float, failure: str = "") -> None:
        """Note that an object was given its CPUs, or why that failed."""
        self._times[key] = (self._times.get(key, []) + [now])[-self.limit :]
        self.failures[key] = failure

    def keep(self, keys: Container[str]) -> None:
        """Forget what has ended."""
        self._times = {key: times for key, times in self._times.items() if key in keys}
        self.failures = {key: text for key, text in self.failures.items() if key in keys}


def culprit(host: Host, target: Target) -> str:
    """Return who probably changes the CPUs of an object: the kernel does not record it."""
    if target.way == SERVICE:
        paths = services.by_hand(host, target.unit)
        return "likely %s" % (", ".join(paths) if paths else "a program that runs 'systemctl set-property' or writes its control group")
    if target.way == CONTAINER:
        return "likely a program that runs '%s update --cpuset-cpus'" % program_of(target.engine)
    return "likely the process itself, or a program that sets the affinity of others"


class Watcher:
    """Looks, adopts and reports; what it has said once, it says again only when it has changed. ``wanted``: see :class:`Adoption`."""

    def __init__(self, host: Host, plan: str, limit: int, wanted: Mapping[str, Any] = NOTHING) -> None:
        self.host = host
        self.plan = plan
        self.wanted = wanted
        self.tries = Tries(limit)
        self._said: set[str] = set()
        self._left: set[str] = set()

    def look(self) -> bool:
        """Adopt what is to be adopted, and return whether there is a plan at all."""
        try:
            found = self._adoption()
            if found and found.adopted:
                with changing(self.host, PROGRAM):  # what was waited for may have changed everything
                    found = self._adoption()
                    if found:
                        self._adopt(found)
        except (CommandError, OSError, ValueError) as error:
            self._say(["Nothing is adopted: %s" % error])
            return True
        if found:
            self._report(found)
        return found is not None

    def prepare(self, containers: Iterable[str]) -> None:
        """Give containers of pods that have not started their CPUs."""
        for container in containers:
            try:
                with changing(self.host, PROGRAM):
                    plan = read(self.host, self.plan)
                    target = waiting(self.host, plan, container) if plan else None
                    if target and bind(self.host, target):
                        self._tell([target])
            except (CommandError, OSError, ValueError) as error:
                say("Container %s did not get its CPUs before its start: %s" % (container[:12], error))

    def _adoption(self) -> Adoption | None:
        plan = read(self.host, self.plan)
        if plan is None:
            return None
        adoption = Adoption(self.host, plan, users(self.host, with_lost(plan)), {}, self.wanted)
        keys = {target.key(self.host): target for target in adoption.targets}
        self.tries.keep(keys)
        for key, target in keys.items():
            if target.state == ADOPTED and self.tries.are_over(key):
                self._leave(key, target)
        return adoption

    def _leave(self, key: str, target: Target) -> None:
        why = self.tries.failures.get(key)
        text = "adopting it failed %d times within an hour, and it is not tried again; the last time: %s"
        if not why:
            text, why = (
                "it was given these CPUs %d times within an hour, did not keep them, and is left alone; %s",
                culprit(self.host, target),
            )
        target.refuse(text % (self.tries.limit, why))
        if key not in self._left:
            self._left.add(key)
            log_change(self.host, Change("stop", PROGRAM, target.sentence))

    def _adopt(self, adoption: Adoption) -> None:
        tried = {target.key(self.host): target for target in adoption.adopted}
        try:
            adoption.run()
        except (CommandError, OSError, ValueError):
            adoption.undo()
            raise
        for key, target in tried.items():
            self.tries.note(key, time.monotonic(), target.text)

    def _tell(self, targets: Iterable[Target]) -> None:
        lines = diffs.work([target.row() for target in targets])
        if lines:
            log_change(self.host, Change("rebind", PROGRAM, count(len(lines), "change") + " of running work", lines))
        for line in lines:
            say(line)

    def _report(self, adoption: Adoption) -> None:
        self._tell(adoption.adopted)
        left = [target.sentence for target in adoption.targets if target.state in (REFUSED, FAILED)]
        self._say(left + [target.remark for target in adoption.targets if target.remark])

    def _say(self, sentences: Iterable[str]) -> None:
        found = set(sentences)
        for sentence in sorted(found - self._said):
            say(sentence)
        self._said = found


def main(argv: Sequence[str] | None = None) -> int:
    """Watch until the plan is gone, and then return 0."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Confine work, also if it starts later, to the CPUs of its NPUs.")
    parser.add_argument("--plan", default=PLAN, help="the plan as applied (default: %(default)s)")
    parser.add_argument("--rebind-limit", type=int, default=0, help="how often to adopt an object within an hour (default: without limit)")
    parser.add_argument("--pods", action="store_true", help="adopt pods, too, on nodes where the kubelet assigns no CPUs")
    parser.add_argument("--move-memory", action="store_true", help="give work the memory nodes of its NPUs, too, which moves its memory")
    parser.add_argument(
        "--environment",
        type=lambda text: dict.fromkeys(text.split(","), True),
        default={},
        metavar=",".join(SWITCHES),
        help="set variables in the drop-ins of services, which count from their next start on",
    )
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    options = parser.parse_args(argv)
    host = Host(options.root)
    watcher = Watcher(host, options.plan, options.rebind_limit, vars(options))
    wakes, schedule = Wakes(host, options.pods), Schedule(time.monotonic())
    while True:
        pause = schedule.pause(time.monotonic())
        if pause > 0:
            if wakes.wait(pause):
                watcher.prepare(wakes.announcements.read())
                schedule.wake(time.monotonic())
            continue
        before = time.process_time()
        there = watcher.look()
        if not there:
            say("There is no %s: nothing is adopted." % options.plan)
            return 0
        schedule.looked(time.monotonic(), time.process_time() - before)
