# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the watcher that adopts work which starts later.

Containers of pods that were created and have not started get the CPUs of their NPUs before their first instruction. containerd's own events
say when one is created (``ctr events``, which any number of programs may read). The event stream of CRI is left alone: in containerd 1.7 a
second reader takes events from the kubelet. Between its creation and its start the kubelet leaves some milliseconds; a container that has
started by then is adopted while it runs.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any, Container

from ..._base.cpulist import compress, expand
from ..._base.findings import Device, with_lost
from ..._base.outside import json_of, require_shape, say
from ..._host.host import CommandError, Host, search_path
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import granted, online
from ..._state.lock import changing
from ..._state.log import log_change
from ..._state.plan_file import read
from ..._users.engines import bundle
from ..._users.finding import created, is_whole, members_with, users
from ..watching import PROGRAM, Births, Watching
from . import choosing, services
from .choosing import Adopt, Pods
from .engines import SOCKETS, Engines, are_all, described, program_of
from .feature import SETTINGS
from .record import CONTAINER, SERVICE, started
from .target import ADOPTED, FAILED, REFUSED, Target
from .work import Scope, Work

if TYPE_CHECKING:
    from ..._base.documents import Plan

WITHIN = 3600.0
_FAILS = "adopting it failed %d times within an hour, and it is not tried again; the last time: %s"
_LOSES = "it was given these CPUs %d times within an hour, did not keep them, and is left alone; %s"
_SHAPE = {"about": str, "rebind_limit": int, "move_memory": bool, "pods": bool, "environment": dict}
_PROGRAM = "ctr"
_CREATE = re.compile(r" /containers/create (\{.*\})\Z")
_FILTER = 'namespace==k8s.io,topic=="/containers/create"'
_LONGEST = 1 << 20
_AGAIN = 30.0
"""Bytes of a line, and seconds after which a reader that has ended is started again."""


class Tries:
    """When each object was given its CPUs, and why that failed, '' where it did not.

    One that does not keep them is left alone until it ends; with a limit of 0 none is.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._tries: dict[str, list[tuple[float, str]]] = {}

    def last_failure(self, key: str) -> str | None:
        """Return why the last try failed, if an object was given its CPUs so often within an hour that it is left alone."""
        tries = self._tries.get(key, [])
        is_exhausted = 0 < self.limit <= len(tries) and tries[-1][0] - tries[-self.limit][0] < WITHIN
        return tries[-1][1] if is_exhausted else None

    def note(self, key: str, now: float, failure: str) -> None:
        self._tries[key] = (self._tries.get(key, []) + [(now, failure)])[-(self.limit or 1) :]

    def keep(self, keys: Container[str]) -> None:
        self._tries = {key: tries for key, tries in self._tries.items() if key in keys}


def likely_cause(host: Host, target: Target) -> str:
    """Return who probably changes the CPUs of an object: the kernel does not record it."""
    if target.method == SERVICE:
        paths = services.overrides(host, target.unit)
        return "likely %s" % (", ".join(paths) if paths else "a program that runs 'systemctl set-property' or writes its control group")
    if target.method == CONTAINER:
        return "likely a program that runs '%s update --cpuset-cpus'" % program_of(target.engine)
    return "likely the process itself, or a program that sets the affinity of others"


def _key(host: Host, target: Target) -> str:
    """Return what tells a try from others: the group or process, when that was started, and its CPUs, others with more devices."""
    pids = target.pids(host)
    name = target.user["group"] if is_whole(target.user) or not pids else "%d" % pids[0]
    starts = [start for start in (started(host, pid) for pid in pids) if start is not None]
    return "%s-%d %s" % (name, min(starts, default=0), compress(target.wanted))


class Watcher(Watching):
    def __init__(self, host: Host) -> None:
        Watching.__init__(self, host)
        self.tries = Tries(0)
        self._announcements = Announcements(host)
        self._abandoned: set[str] = set()
        self._unsure: set[int] = set()

    def look(self) -> bool:
        self._run(None)
        if self.pods:
            self._announcements.start()
        else:
            self._announcements.stop()
        return self.host.exists(SETTINGS)

    @property
    def descriptor(self) -> int:
        return self._announcements.descriptor

    def announced(self) -> bool:
        containers = self._announcements.read()
        for container in containers:
            self.prepare(container)
        return bool(containers)

    def born(self, births: Births) -> bool:
        """Adopt processes of sessions. A service or container opens its devices one after the other, and is adopted with all of them."""
        opened = [pid for pid, threads in births.items() if threads is None]
        targets = self._run(members_with(self.host, opened)) if opened else []
        users = [target.user for target in targets if target.state == ADOPTED or len(target.npus) > 1]
        unsure = {process["pid"] for user in users for process in user["processes"] if len(process["devices"]) > 1} - self._unsure
        self._unsure |= unsure  # of several GPUs, nvidia-smi tells those that it uses
        return bool(unsure) or any(target.state == ADOPTED and is_whole(target.user) for target in targets)

    def _run(self, pids: list[int] | None) -> list[Target]:
        """Adopt what is to be adopted, with ``pids`` only what these processes are, and return all of it."""
        try:
            work = self._work(pids)
            if work is None:
                return []
            adopting = Adopt(self.host, work)
            adopting.look(check=False)
            if work.adopted:
                with changing(self.host, PROGRAM):  # what was waited for may have changed everything
                    self._adopt(adopting)
        except (CommandError, OSError, ValueError) as error:
            self._say(["Nothing is adopted: %s" % error], pids is None)
            return []
        self._log([line for target in work.adopted for line in target.lines()], "running work")
        sentences = [target.sentence for target in work.targets if target.state in (REFUSED, FAILED)]
        self._say(sentences + [target.remark for target in work.targets if target.remark], pids is None)
        return work.targets

    def prepare(self, container: str) -> None:
        """Give a container of a pod that has not started its CPUs.

        A start that is under way may have read its specification before; then the look at running work decides.
        """
        try:
            with changing(self.host, PROGRAM):
                plan = read(self.host)
                targets = waiting(self.host, plan, container) if plan else []
                adopting = Adopt(self.host, Work(lambda *_arguments: targets, Scope(is_part=True)))
                for target in targets:
                    adopting.run()
                    adopting.finish()
                    if target.text:
                        raise ValueError(target.text)
                    if not bundle(self.host, container):
                        self._log(target.lines(), "running work")
        except (CommandError, OSError, ValueError) as error:
            say("Container %s did not get its CPUs before its start: %s" % (container[:12], error))

    def _work(self, pids: list[int] | None) -> Work | None:
        text, self.pods = self.host.text(SETTINGS), False
        plan = read(self.host) if text is not None else None
        if text is None or plan is None:
            return None
        settings = json_of(text)
        require_shape(settings, _SHAPE, SETTINGS)
        self.tries.limit, self.pods, scope = settings["rebind_limit"], settings["pods"], Scope(plan, settings, None, pids is not None)

        def find(engines: Engines, groups: services.Groups) -> list[Target]:
            used = users(self.host, with_lost(plan), among=pids)
            targets = choosing.targets(self.host, scope, used, {}, engines, groups)
            keys = {_key(self.host, target): target for target in targets}
            if not scope.is_part:
                self.tries.keep(keys)
            for key, target in keys.items():
                failure = self.tries.last_failure(key) if target.state == ADOPTED else None
                if failure is not None:
                    self._leave(key, target, failure)
            return targets

        return Work(find, scope)

    def _leave(self, key: str, target: Target, failure: str) -> None:
        target.refuse((_FAILS if failure else _LOSES) % (self.tries.limit, failure or likely_cause(self.host, target)))
        if key not in self._abandoned:
            self._abandoned.add(key)
            log_change(self.host, "stop", PROGRAM, target.sentence)

    def _adopt(self, adopting: Adopt) -> None:
        try:
            adopting.run()
            adopting.finish()
        except (CommandError, OSError, ValueError):
            adopting.undo()
            raise
        for target in adopting.work.targets:
            if target.state in (ADOPTED, FAILED):
                self.tries.note(_key(self.host, target), time.monotonic(), target.text)


class Announcements:
    """Reads the events of containerd. ``descriptor`` is -1 while nothing can be read: no ctr, no containerd, or it is restarted."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.descriptor = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._next = 0.0

    def start(self) -> None:
        """Start to read, unless that is done already or failed a moment ago."""
        program, sockets = self.host.find_program(_PROGRAM, ()), [path for path in SOCKETS[:2] if self.host.exists(path)]
        if self._process or not (program and sockets and self.host.live) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _AGAIN
        self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function # a unit runs this, without an AnsibleModule
            [program, "--address", sockets[0], "--namespace", "k8s.io", "events", _FILTER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, PATH=search_path(), LC_ALL="C"),
        )
        self.descriptor = self._process.stdout.fileno() if self._process.stdout else -1
        os.set_blocking(self.descriptor, False)

    def read(self) -> list[str]:
        try:
            chunk = os.read(self.descriptor, 1 << 16) if self.descriptor >= 0 else None
        except BlockingIOError:
            chunk = None
        if chunk == b"":
            self.stop()
        *lines, self._rest = (self._rest + (chunk or b"")).split(b"\n")
        self._rest = self._rest if len(self._rest) < _LONGEST else b""
        return [container for container in map(_container, lines) if container]

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process, self.descriptor, self._rest = None, -1, b""


def _container(line: bytes) -> str:
    match = _CREATE.search(line.decode("utf-8", "replace"))
    try:
        event: Any = json_of(match.group(1)) if match else None
    except ValueError:
        return ""
    name = event.get("id") if isinstance(event, dict) else None
    return name if isinstance(name, str) and re.match(r"[0-9a-f]{64}\Z", name) else ""


def waiting(host: Host, plan: Plan, container: str) -> list[Target]:
    """Return a container that has not started, to be adopted; none where the look at running work decides, or nothing has to be done."""
    description = described(host, container)
    user = created(host, container, description.spec, with_lost(plan)) if description and description.waits else None
    entries = {Device.of(npu)[:2]: npu for npu in plan["npus"]}
    keys = [(npu["kind"], npu["id"]) for npu in user["npus"]] if user else []
    if description is None or user is None or not keys or user.get("unassigned") or not entries.keys() >= set(keys):
        return []
    npus = [entries[key] for key in keys]
    target = Target(host, user, npus, {cpu for npu in npus for cpu in expand(npu["pool"])} & online(host))
    top = CGROUPS + "/cpuset" if host.exists(CGROUPS + "/cpuset") else CGROUPS
    around = granted(host, top + posixpath.dirname(user["group"]).rstrip("/")) or set()  # else it does not start
    is_free = are_all(host, "cpus", description.sets["cpus"]) and not Pods(host, True).refusal(user, description.spec)
    if not (is_free and target.wanted and target.wanted <= around):
        return []
    target.state, target.before, target.after = ADOPTED, around, target.wanted
    return [target]
