# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work that uses NPUs: by what it is confined, on which CPUs it runs, and what becomes of it. Reads only."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import Device
from ..._base.fitting import Variables
from ..._host.host import Host
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import cpuset
from ..._kernel.processes import control_groups
from ..._users.engines import CRI
from ..._users.finding import is_whole, pids_of
from ..._users.inherited import origin
from ..._users.groups import title_of
from . import record, services, tasks
from .engines import ENGINES
from .record import CONTAINER, SERVICE

if TYPE_CHECKING:
    from ..._base.documents import NpuUser, PlanEntry

INSIDE, ADOPTED, REFUSED, FAILED = "inside", "adopted", "refused", "failed"
THREADS = "threads"
"""Besides ``SERVICE`` and ``CONTAINER`` by what work is confined: the affinity of its threads, not a drop-in or an engine."""
_SYSTEM_UNIT = re.compile(r"(?:/[\w:.\\@-]+\.slice)*/([\w:.\\@-]+\.service)\Z", re.ASCII)


class Target:
    """One user of NPUs, and what becomes of it. ``npus`` are the entries of the plan that it holds, ``wanted`` the CPUs of their pools.

    ``by_group``: whether its group confines it, and not the masks of its threads alone. ``mems`` are the memory nodes its group gets, or
    to which the memory of its processes moves ('': it stays, with a ``remark`` where it was to move), and ``moved`` the bytes that follow.
    ``group_key``: the key by which the record has its group, '' where its threads alone are confined. ``engine`` is CRI for all of pods.
    ``handed_down`` are masks of its threads that are narrower than its pool and that systemd or an engine gave it, not its program.
    """

    def __init__(self, host: Host, user: NpuUser, npus: Sequence[PlanEntry], wanted: set[int]) -> None:
        self.user = user
        self.title = "%s (%s)" % (title_of(user), " and ".join(Device.of(npu).title for npu in npus))
        self.unit = posixpath.basename(user["group"])
        self.is_of_pod, self.is_rank = user["kind"] == "pod", "rank" in user
        self.engine = CRI if self.is_of_pod and user["container"] else user["engine"]
        self.method = _method(host, user, self.engine)
        self.group_key = {SERVICE: self.unit, CONTAINER: "%s:%s" % (self.engine, user["container"])}.get(self.method, "")
        self.by_group = self.method == CONTAINER or (self.method == SERVICE and services.follow_at_once(host))
        self.npus = npus
        self.wanted = wanted
        self.before = self.after = self._cpus(host)
        self.state = INSIDE
        self.mems = self.mems_before = self.mems_recorded = self.remark = self.text = ""
        self.moved = 0
        self.handed_down: list[set[int]] = []
        self.variables: Variables = {}
        self.kept: list[str] = []
        self.variables_before = self.variables_after = services.drop_in_variables(host, self.unit) if self.method == SERVICE else {}

    def _cpus(self, host: Host) -> set[int]:
        """Return the CPUs that the threads of all its processes may use, also of those that hold no NPU: they are confined together."""
        masks = {process["pid"]: process["cpus"] for process in self.user["processes"]}
        texts = {text for pid in self.pids(host) if pid not in masks for text in tasks.masks(host, pid).values()}.union(masks.values())
        return {cpu for text in texts or {self.user["cpus"]} for cpu in expand(text)}

    @property
    def sets(self) -> dict[str, str]:
        """What its group is to have, as a record, an engine and a drop-in have it."""
        return dict({"cpus": compress(self.wanted)}, **({"mems": self.mems} if self.mems and self.by_group else {}))

    @property
    def is_kept(self) -> bool:
        """Whether it runs where it is to run, and stays there."""
        return self.state == INSIDE and bool(self.before) and self.before <= self.wanted

    def granted(self, host: Host, kind: str = "cpus") -> set[int]:
        """Return what the kernel grants to new threads."""
        return {value for pid in self.pids(host) for value in cpuset(host, pid, kind) or ()}

    def folder(self, host: Host) -> str | None:
        """Return the folder of the group whose cpuset confines it: on v1 that of the cpuset hierarchy; None if there is none."""
        if not host.exists(CGROUPS + "/cpuset"):
            return CGROUPS + self.user["group"] if host.exists(CGROUPS + "/cgroup.controllers") else None
        paths = [path for controllers, path in control_groups(host, self.pids(host)[0]) if "cpuset" in controllers.split(",")]
        return "%s/cpuset%s" % (CGROUPS, paths[0]) if paths else None

    def find_handed_down(self, host: Host) -> None:
        for pid in self.pids(host):
            masks = [set(expand(text)) for text in set(tasks.masks(host, pid).values())]
            narrow = [mask for mask in masks if not self.wanted <= mask and mask not in self.handed_down]
            self.handed_down += [mask for mask in narrow if origin(host, pid, mask, mask).handed_down]

    def shortfall(self, host: Host) -> str:
        """Return what shows that it did not get its sets, '' where it did."""
        running = {cpu for pid in self.pids(host) for cpus in tasks.masks(host, pid).values() for cpu in expand(cpus)}
        granted = self.granted(host) if self.by_group else set()
        mems = self.granted(host, "mems") if "mems" in self.sets else set()
        if not running | granted <= self.wanted:
            what, cpus = ("runs on", running) if granted <= running else ("its control group grants", granted)
            return "it was given CPUs %s, and %s %s" % (compress(self.wanted), what, compress(cpus))
        if not mems <= set(expand(self.mems)):
            return "it was given memory nodes %s, and its control group grants %s" % (self.mems, compress(mems))
        ended = self.by_group and self.moved and not mems
        return "it ended while its memory was moved to nodes %s" % self.mems if ended else ""

    def processes(self, host: Host) -> dict[str, int]:
        """Return its processes by their keys in a record, except for one that was not looked at and has the number of one that was."""
        seen = {process["pid"]: process["start"] for process in self.user["processes"]}
        starts = {pid: record.started(host, pid) for pid in self.pids(host)}
        return {record.process(host, pid): pid for pid, start in starts.items() if start is not None and seen.get(pid, start) == start}

    def pids(self, host: Host) -> list[int]:
        return pids_of(host, self.user)

    def has_drop_in(self, host: Host) -> bool:
        """Whether it is a service that is adopted, now or before."""
        is_adopted = self.state == ADOPTED or self.state == INSIDE and services.drop_in_sets(host, self.unit) is not None
        return self.method == SERVICE and is_adopted

    def refuse(self, text: str, state: str = REFUSED) -> None:
        self.state, self.text, self.after = state, text, self.before
        self.mems, self.remark, self.moved, self.variables_after = "", "", 0, self.variables_before

    def row(self) -> dict[str, Any]:
        """Return a row of ``users`` that module ``host_files`` returns: titles, cpulists, and variables by name."""
        return {
            "name": title_of(self.user),
            "kind": self.user["kind"],
            "pids": [process["pid"] for process in self.user["processes"]],
            "npus": [Device.of(npu).title for npu in self.npus],
            "before": compress(self.before),
            "wanted": compress(self.wanted),
            "after": compress(self.after),
            "mems_before": self.mems_before,
            "mems_after": self.mems or self.mems_before,
            "variables_before": self.variables_before,
            "variables_after": self.variables_after,
            "state": self.state,
            "text": self.text,
        }

    def lines(self) -> list[str]:
        """Return the line of a diff, if it gets other CPUs, memory nodes or variables."""
        mems = self.mems or self.mems_before
        moved = ["CPUs %s -> %s" % (compress(self.before), compress(self.after))] if self.before != self.after else []
        moved += ["memory nodes %s -> %s" % (self.mems_before, mems)] if self.mems_before != mems else []
        if self.variables_before != self.variables_after:
            texts = [" ".join("%s=%s" % pair for pair in variables.items()) for variables in (self.variables_before, self.variables_after)]
            moved.append("variables at its next start %s -> %s" % (texts[0] or "none", texts[1] or "none"))
        return ["~ %s: %s" % (self.title, ", ".join(moved))] if moved else []

    @property
    def sentence(self) -> str:
        where = ", outside its pool %s" % compress(self.wanted) if not self.before <= self.wanted else ""
        return "%s runs on CPUs %s%s: %s" % (self.title, compress(self.before), where, self.text)


def _method(host: Host, user: NpuUser, engine: str) -> str:
    """Return by what work is confined. The unit of ``systemd-run`` ends with its program, and leaves no drop-in behind."""
    match = _SYSTEM_UNIT.match(user["group"]) if is_whole(user) else None
    if match and not host.exists("/run/systemd/transient/" + match.group(1)):
        return SERVICE
    return CONTAINER if is_whole(user) and engine in ENGINES else THREADS
