# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which running work is adopted, in which way, and why other work is left alone. Reads only.

Work belongs to the CPUs of exactly the NPUs that it holds. It is refused where these cannot be given to it while it runs: a cpuset that is
disjoint from that of the group around it is no error for the kernel, which then grants the whole set of that group.
"""

from __future__ import annotations

import posixpath
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Container, Iterable, Iterator, Mapping, Sequence, Set

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import cpuset, granted
from ..._base.device import Device, with_lost
from ..._base.fitting import Variables, values_of
from ..._state.systemd import Systemd
from ..._users.advice import way
from ..._users.finding import by_process, is_whole, members_of, pids_of, user_of
from ..._users.sentences import title_of
from . import engines, services, tasks
from .memory import Nodes
from .record import Record, identity

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

Expected = Mapping[str, Set[int]]
"""CPUs by unit."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Of what the desired state has of the feature, where nothing but CPUs is wanted."""
INSIDE, ADOPTED, REFUSED, FAILED = "inside", "adopted", "refused", "failed"
SERVICE, CONTAINER, THREADS = "service", "container", "threads"
"""By what work is confined: the drop-in of its service, its engine, or the affinity of its threads."""
_SYSTEM_UNIT = re.compile(r"(?:/[\w:.\\@-]+\.slice)*/([\w:.\\@-]+\.service)\Z")
_CPUSETS = "/cpuset"


class Target:
    """One user of NPUs, and what becomes of it. ``npus`` are the entries of the plan that it holds, ``wanted`` the CPUs of their pools.

    ``by_group``: whether its group confines it, and not the masks of its threads alone. ``mems`` are the memory nodes its group gets, or
    to which the memory of its processes moves ('': it stays, with a ``remark`` where it was to move), and ``moved`` the bytes that follow.
    """

    def __init__(self, host: Host, user: NpuUser, npus: Sequence[Mapping[str, Any]], wanted: set[int]) -> None:
        self.user = user
        self.way = _way(host, user)
        self.by_group = self.way == CONTAINER or (self.way == SERVICE and services.follow_at_once(host))
        self.npus = npus
        self.wanted = wanted
        self.before = self._cpus(host)
        self.after = self.before
        self.state = INSIDE
        self.text = ""
        self.engine_before = ""
        self.mems = self.mems_before = self.mems_recorded = self.remark = ""
        self.moved = 0
        self.variables: Variables = {}
        self.kept: list[str] = []
        self.variables_before = services.variables_said(host, self.unit) if self.way == SERVICE else {}
        self.variables_after = self.variables_before

    @property
    def title(self) -> str:
        return "%s (%s)" % (title_of(self.user), " and ".join(Device.of(npu).title for npu in self.npus))

    @property
    def unit(self) -> str:
        return posixpath.basename(self.user["group"])

    def key(self, host: Host) -> str:
        """Return what tells it from every other, and from itself before a restart: the group or process, and when that was started."""
        pids = self.pids(host)
        name = self.user["group"] if is_whole(self.user) or not pids else "%d" % pids[0]
        return "%s-%d" % (name, min((found[0] for found in (identity(host, pid) for pid in pids) if found), default=0))

    def _cpus(self, host: Host) -> set[int]:
        """Return the CPUs that the threads of all its processes may use, also of those that hold no NPU: they are confined together."""
        known = {process["pid"]: process["cpus"] for process in self.user["processes"]}
        texts = {text for pid in self.pids(host) if pid not in known for text in tasks.masks(host, pid).values()}.union(known.values())
        return {cpu for text in texts or {self.user["cpus"]} for cpu in expand(text)}

    @property
    def sets(self) -> dict[str, str]:
        """What its group is to have, as a record, an engine and a drop-in have it."""
        return dict({"cpus": compress(self.wanted)}, **({"mems": self.mems} if self.mems and self.by_group else {}))

    @property
    def is_kept(self) -> bool:
        """Whether it runs where it is to run, and stays there."""
        return self.state == INSIDE and bool(self.before) and self.before <= self.wanted

    @property
    def changes_memory(self) -> bool:
        return bool(self.mems) and (self.mems != self.mems_recorded or not set(expand(self.mems_before)) <= set(expand(self.mems)))

    def granted(self, host: Host, kind: str = "cpus") -> set[int]:
        """Return what the kernel grants to new threads."""
        return {value for pid in self.pids(host) for value in cpuset(host, pid, kind) or ()}

    def folder(self, host: Host) -> str | None:
        """Return the folder of the group whose cpuset confines it: on v1 that of the cpuset hierarchy; None if there is none."""
        if not host.exists(CGROUPS + _CPUSETS):
            return CGROUPS + self.user["group"] if host.exists(CGROUPS + "/cgroup.controllers") else None
        for line in (host.read("/proc/%d/cgroup" % self.pids(host)[0]) or "").splitlines():
            _number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
            if "cpuset" in controllers.split(","):
                return CGROUPS + _CPUSETS + path
        return None

    def pids(self, host: Host) -> list[int]:
        return pids_of(host, self.user)

    def has_drop_in(self, host: Host) -> bool:
        """Whether it is a service that is adopted, now or before."""
        return self.way == SERVICE and (self.state == ADOPTED or self.state == INSIDE and services.said(host, self.unit) is not None)

    def hazards(self, host: Host) -> list[str]:
        """Return sentences on what keeps an adopted service from starting again."""
        return services.hazards(host, self.unit, compress(self.wanted), self.state == ADOPTED) if self.has_drop_in(host) else []

    def refuse(self, text: str, state: str = REFUSED) -> None:
        self.state, self.text, self.after = state, text, self.before
        self.mems, self.remark, self.moved, self.variables_after = "", "", 0, self.variables_before

    def row(self) -> dict[str, Any]:
        """Return a row of ``users`` that module ``host_files`` returns of the feature.

        ``npus`` are titles. CPUs and memory nodes are cpulists, variables such as ``{OMP_NUM_THREADS: 4}``.
        """
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

    @property
    def sentence(self) -> str:
        where = ", outside its pool %s" % compress(self.wanted) if not self.before <= self.wanted else ""
        return "%s runs on CPUs %s%s: %s" % (self.title, compress(self.before), where, self.text)


def _way(host: Host, user: NpuUser) -> str:
    """Return by what work is confined. The unit of ``systemd-run`` ends with its program, and leaves no drop-in behind."""
    match = _SYSTEM_UNIT.match(user["group"]) if is_whole(user) else None
    if match and not host.exists("/run/systemd/transient/" + match.group(1)):
        return SERVICE
    return CONTAINER if is_whole(user) and user["engine"] in engines.ENGINES else THREADS


def targets(host: Host, plan: Mapping[str, Any], users: Iterable[NpuUser], expected: Expected, wanted: Mapping[str, Any]) -> list[Target]:
    """Return the users that hold NPUs of a plan, with what would become of each: inside, adopted or refused.

    ``expected`` has the CPUs that units get in the same transaction: what runs in them follows. ``wanted``: see :class:`Adoption`.
    """
    planned = {(Device.of(npu).kind, npu["id"]) for npu in plan["npus"]}
    entries = {(Device.of(npu).kind, npu["id"]): npu for npu in with_lost(plan)}
    online = set(expand(host.read("/sys/devices/system/cpu/online") or ""))
    record, nodes = Record(host), Nodes(host, wanted.get("move_memory", False))
    found: list[Target] = []
    users = list(users)
    users += _idle(host, record, {posixpath.basename(user["group"]) for user in users})
    for user in (part for whole in users for part in _parts(host, plan, whole)):
        keys = sorted((npu["kind"], npu["id"]) for npu in user["npus"])
        if planned.isdisjoint(keys):
            continue
        npus = [entries[key] for key in keys if key in entries]
        pools = {cpu for npu in npus for cpu in expand(npu["pool"])}
        target = Target(host, user, npus, pools & online if online else pools)
        found.append(target)
        follows = any("/%s/" % unit in user["group"] + "/" and cpus <= target.wanted for unit, cpus in expected.items())
        is_inside = target.before and target.before <= target.wanted
        known = _recorded(host, target, record)
        written = [entry.get("mems", "") for entry in known if target.by_group or "threads" in entry]
        is_outdated = any(set(expand(entry["cpus"])) not in (set(), target.wanted) for entry in known)
        if target.way == SERVICE:
            switches = wanted.get("environment") or {}
            target.variables, target.kept = services.variables(host, target.unit, npus, compress(target.wanted), switches)
            is_outdated = is_outdated or bool(known) and target.variables_before != values_of(target.variables)
        is_moved = not follows and (not is_inside or is_outdated)
        if is_moved:
            _judge(host, target, record, expected)
        if target.state == ADOPTED or written and not (is_moved or follows):
            nodes.choose(target, written)
        if target.changes_memory and not is_moved:
            _judge(host, target, record, expected)
    return found


def _idle(host: Host, record: Record, found: Container[str]) -> Iterator[NpuUser]:
    """Yield the adopted services that run and have no NPU open at the moment: they follow the plan, because they will open one again."""
    missing = sorted(unit for unit in record.services if unit not in found) if host.live else []
    for unit, shown in Systemd(host).show(["ControlGroup"], missing).items():
        pids = members_of(host, shown["ControlGroup"]) if shown.get("ControlGroup") else []
        if pids:
            yield user_of(host, shown["ControlGroup"], pids, [Device(kind, number, "") for kind, number in record.services[unit]["npus"]])


def _recorded(host: Host, target: Target, record: Record) -> list[Mapping[str, Any]]:
    """Return what the record has of a target, by its group or of its processes."""
    if target.way == CONTAINER:
        known = [record.containers.get(target.user["container"] or "")]
    else:
        known = [record.services.get(target.unit)] if target.way == SERVICE else []
    if not target.by_group:
        known += [record.processes[str(pid)] for pid in target.pids(host) if str(pid) in record.processes and record.lives(str(pid))]
    return [entry for entry in known if entry]


def _parts(host: Host, plan: Mapping[str, Any], user: NpuUser) -> Iterator[NpuUser]:
    """Yield each process of a session as a user of its own, because each is confined by itself; other users as they are."""
    if is_whole(user) or not user["processes"]:
        yield user
        return
    yield from by_process(host, with_lost(plan), user)


def _judge(host: Host, target: Target, record: Record, expected: Expected) -> None:
    """Have a target adopted, or refuse what cannot be."""
    user = target.user
    target.state, target.after, target.variables_after = ADOPTED, target.wanted, values_of(target.variables)
    if user["kind"] == "pod":
        target.refuse("the kubelet places pods; use its static CPU manager policy (docs/kubelet.md)")
    elif user.get("unassigned"):
        devices = " and ".join("/dev/" + name for name in user["unassigned"])
        verb = "may also open" if user["witness"] == "allowed" else "also holds"
        target.refuse("it %s %s, whose NPU is not in the plan" % (verb, devices))
    elif user["witness"] == "allowed" and len(target.npus) > 1:
        target.refuse("it may open several NPUs and has opened none; which ones it uses is not known yet")
    elif not target.pids(host):
        target.refuse("it has no process")
    elif not target.wanted:
        target.refuse("no CPU of the pool is online")
    else:
        _judge_place(host, target, expected)
        if target.state == ADOPTED and target.way == CONTAINER:
            _judge_container(host, target, record)
        elif target.state == ADOPTED and target.way == SERVICE:
            paths = services.by_hand(host, target.unit, _recorded(host, target, record))
            if paths:
                target.refuse("its CPUs are overridden by %s; remove the file and run 'systemctl daemon-reload'" % ", ".join(paths))


def _judge_place(host: Host, target: Target, expected: Expected) -> None:
    """Refuse what runs in a group whose surroundings do not grant the wanted CPUs, or that has no cpuset to set."""
    folder = target.folder(host)
    if folder is None:
        if target.way == CONTAINER:
            target.refuse("this kernel has no cpuset for containers (%s/cpuset/cpuset.cpus is missing)" % CGROUPS)
        return
    if (host.read(folder + "/cpuset.cpus.partition") or "member") != "member":
        target.refuse("its cpuset is a partition (%s/cpuset.cpus.partition)" % folder)
        return
    around = granted(host, folder if target.way == THREADS else posixpath.dirname(folder))
    around = set(expand(host.read("/sys/devices/system/cpu/online") or "")) if around is None else around
    for unit, cpus in expected.items():
        if "/%s/" % unit in folder:
            around &= cpus
    if not target.wanted <= around:
        target.refuse("the group around it grants CPUs %s only; %s" % (compress(around) or "(none)", way(target.user)))


def _judge_container(host: Host, target: Target, record: Record) -> None:
    """Refuse a container that asked for CPUs itself, or whose engine does not answer."""
    container = target.user["container"] or ""
    if not host.live:
        target.refuse("its engine does not run below %s" % host.root)
        return
    try:
        sets = engines.sets_of(host, target.user["engine"], container)
    except (CommandError, ValueError) as error:
        target.refuse(str(error))
        return
    found = sets["cpus"] if sets else ""
    if sets is None:
        target.refuse("it is gone")
    elif not engines.are_all(host, "cpus", found) and found != record.containers.get(container, {}).get("cpus"):
        target.refuse("it was given CPUs %s when it was created; change them with '%s update'" % (found, target.user["engine"]))
    target.engine_before = found
