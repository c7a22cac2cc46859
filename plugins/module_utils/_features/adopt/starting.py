# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of pods that were created and have not started: they get the CPUs of their NPUs before their first instruction.

containerd's own events say when one is created (``ctr events``, which any number of programs may read). The event stream of CRI is left
alone: in containerd 1.7 a second reader takes events from the kubelet. Between its creation and its start the kubelet leaves some
milliseconds; a container that has started by then is adopted while it runs.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ..._base.cpulist import expand
from ..._base.findings import Device, with_lost
from ..._base.outside import json_of
from ..._host.host import Host, search_path
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import granted, online
from ..._users.engines import bundle
from ..._users.finding import created
from .engines import SOCKETS, are_all, described
from .choosing import Pods
from .step import Adopt
from .target import ADOPTED, Target
from .work import Work

if TYPE_CHECKING:
    from ..._base.documents import Plan

_PROGRAM = "ctr"
_CREATE = re.compile(r" /containers/create (\{.*\})\Z")
_FILTER = 'namespace==k8s.io,topic=="/containers/create"'
_LONGEST = 1 << 20
_AGAIN = 30.0
"""Bytes of a line, and seconds after which a reader that has ended is started again."""


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


def waiting(host: Host, plan: Plan, container: str) -> Target | None:
    """Return a container that has not started, to be adopted; None where the look at running work decides, or nothing has to be done."""
    description = described(host, container)
    user = created(host, container, description.spec, with_lost(plan)) if description and description.waits else None
    entries = {(Device.of(npu).kind, npu["id"]): npu for npu in plan["npus"]}
    keys = [(npu["kind"], npu["id"]) for npu in user["npus"]] if user else []
    if description is None or user is None or not keys or user.get("unassigned") or not entries.keys() >= set(keys):
        return None
    npus = [entries[key] for key in keys]
    target = Target(host, user, npus, {cpu for npu in npus for cpu in expand(npu["pool"])} & online(host))
    top = CGROUPS + "/cpuset" if host.exists(CGROUPS + "/cpuset") else CGROUPS
    around = granted(host, top + posixpath.dirname(user["group"]).rstrip("/")) or set()  # else it does not start
    is_free = are_all(host, "cpus", description.sets["cpus"]) and not Pods(host, True).refusal(user, description.spec)
    if not (is_free and target.wanted and target.wanted <= around):
        return None
    target.state, target.before, target.after = ADOPTED, around, target.wanted
    return target


def bind(host: Host, target: Target) -> bool:
    """Give a container that has not started its CPUs, and return whether it still has not. Takes the host's lock to be held.

    A start that is under way may have read its specification before; then the look at running work decides. Raises ``ValueError``.
    """
    adopting = Adopt(host, Work(lambda *_found: [target], is_part=True))
    adopting.run()
    adopting.finish()
    if target.text:
        raise ValueError(target.text)
    return not bundle(host, target.user["container"] or "")
