# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes belong to which NPUs, as procfs tells it. Reads only.

A process is found by the slice or unit that its cgroup lies in, by its number, or by the device files ``/dev/davinci<N>`` that it has open.
Everything is read from procfs and not through a library: names of threads, cgroups and open devices are there only, another tree than the
running machine's can be read, and the boot units need nothing but Python. Sources: Linux ``Documentation/filesystems/proc.rst``,
cgroups(7), and systemd's ``docs/CGROUP_DELEGATION.md`` for the paths.
"""

from __future__ import annotations

import posixpath
import sys
from typing import TYPE_CHECKING, Any, Collection, Iterable, Mapping, Sequence

from ..._base.cpulist import expand
from ..._host.host import Host
from ..._kernel.device_opens import device_folder
from ..._kernel.processes import command_of, started_with, variables_of
from ..._ranks.devices import there
from ..._ranks.rank import index_of
from ..._ranks.visible import VARIABLES, visible
from ..._state.plan_file import PATH as PLAN
from ..._base.findings import Device, noun
from ..._state.plan_file import plan_npus, read
from ..._users.devices import numbers, opened, owners
from ..._users.groups import of_pods

if TYPE_CHECKING:
    from ..._base.documents import Plan

ROLES = ("main", "acl", "release", "kv")


class Process:
    """A process and where it was found: ``npus`` are the plan's entries that it belongs to, ``found_by`` a short text."""

    def __init__(self, pid: int, name: str, npus: list[Mapping[str, Any]], found_by: str) -> None:
        self.pid = pid
        self.name = name
        self.npus = npus
        self.found_by = found_by

    @property
    def title(self) -> str:
        return "process %d (%s) of %s" % (self.pid, self.name, titles_of(self.npus))


class Found:
    """``processes`` by number, and ``warnings``: sentences on what was asked for and is not there, or is left alone."""

    def __init__(self, processes: list[Process], warnings: list[str]) -> None:
        self.processes = processes
        self.warnings = warnings


def plan_in_force(host: Host, path: str = PLAN) -> Plan:
    """Return the plan that was bound on the host. Raises ``ValueError`` with a sentence if there is none, or a broken one."""
    plan = read(host, path)
    if plan is None:
        raise ValueError("there is no %s: this host was never bound; bind it, or give a plan" % path)
    return plan


def titles_of(npus: Iterable[Mapping[str, Any]]) -> str:
    return " and ".join(Device.of(npu).title for npu in npus)


class Group:
    """Requested processes, and the plan's entries ``npus`` that they belong to.

    They are those of a ``unit`` (a slice or a service), those with certain ``pids``, or those that have a device of the NPUs open.
    """

    def __init__(self, npus: Sequence[Mapping[str, Any]], unit: str | None = None, pids: set[int] | None = None) -> None:
        self.npus = npus
        self.unit = unit
        self.pids = pids
        self.keys = {Device.of(npu) for npu in npus}

    @property
    def by_device(self) -> bool:
        return self.unit is None and self.pids is None

    @property
    def title(self) -> str:
        return self.unit or ("an open device" if self.by_device else "its number")

    def rank(self, pid: int, paths: list[list[str]]) -> int | None:
        """Return how near the group is to a process, or None: a number is nearer than any unit, an inner unit nearer than an outer."""
        if self.pids is not None:
            return sys.maxsize if pid in self.pids else None
        return depth_of(paths, self.unit) if self.unit else None


def groups_of(plan: Mapping[str, Any], wanted: Iterable[Mapping[str, Any]] = ()) -> list[Group]:
    """Return the :class:`Group` list of ``[{npus, slice, unit, pids, devices}]``; without it, one for the slice of every NPU of the plan.

    ``npus`` are logic ids, none means all. An element without slice, unit, pids and devices means the slices of its NPUs. Raises
    ``ValueError`` for what is not a plan, for an NPU that the plan does not have, and for roles with CPUs outside their pool.
    """
    known = {}
    for npu in reversed(plan_npus(plan)):
        known[npu["id"]] = npu
        _refuse_outside(npu)
    groups = []
    for entry in wanted or [{}]:
        asked = entry.get("npus") or []
        missing = [str(number) for number in asked if number not in known]
        if missing:
            has = ", ".join(str(number) for number in sorted(known)) or "none"
            raise ValueError(
                "npu_affinity_threads_processes: %s %s is not in the plan, which has %s" % (noun(plan["npus"]), ", ".join(missing), has)
            )
        npus = [known[number] for number in sorted(set(asked))] or plan["npus"]
        named = [name for name in (entry.get("slice"), entry.get("unit")) if name]
        if not asked and (named or entry.get("pids")):
            text = "npu_affinity_threads_processes: %s names no NPU or GPU; give the logic ids of npus"
            raise ValueError(text % (named[0] if named else "process %s" % ", ".join(map(str, entry["pids"]))))
        groups += [Group(npus, name) for name in named]
        if entry.get("pids"):
            groups.append(Group(npus, pids=set(entry["pids"])))
        if entry.get("devices"):
            groups.append(Group(npus))
        elif not named and not entry.get("pids"):
            groups += [Group([npu], npu["slice"]) for npu in npus if npu.get("slice")]
    return groups


def _refuse_outside(npu: Mapping[str, Any]) -> None:
    pool = set(expand(npu["pool"], "pool of %s" % Device.of(npu).title))
    for role in ROLES:
        if not set(expand(npu.get(role) or "", "%s of %s" % (role, Device.of(npu).title))) <= pool:
            found = (role, Device.of(npu).title, npu[role], npu["pool"])
            raise ValueError("role %s of %s has CPUs %s, which are not all in its pool %s; plan and bind again" % found)


def cgroups(host: Host, pid: int) -> list[list[str]] | None:
    """Return the cgroup paths of a process as lists of names, one per hierarchy; None when there is no such process."""
    text = host.read("/proc/%s/cgroup" % pid)
    if text is None:
        return None
    return [line.split(":", 2)[2].strip("/").split("/") for line in text.splitlines() if line.count(":") >= 2]


def of_kubernetes(paths: Iterable[list[str]]) -> bool:
    """Whether cgroup paths are those of a pod."""
    return any(map(of_pods, paths))


def depth_of(paths: Iterable[list[str]], unit: str) -> int | None:
    """Return how deep a slice or service lies in cgroup paths, or None when it is in none of them.

    Only slices may be above it: another system's unit of the same name, in a container or of a user, is not meant.
    """
    above = [path[: path.index(unit)] for path in paths if unit in path]
    return max((len(names) for names in above if all(name.endswith(".slice") for name in names)), default=None)


def find(host: Host, plan: Mapping[str, Any], groups: Sequence[Group], pods: bool = False, among: Iterable[int] | None = None) -> Found:
    """Return what :class:`Found` describes. A process in several groups belongs to the nearest one.

    A process that has devices of some of its group's NPUs open belongs to these only; one that has opened none yet, to that of its rank.
    Processes in pods are the kubelet's and left alone unless ``pods``. ``among``: look at these processes only.
    """
    by_device = [group for group in groups if group.by_device]
    files = numbers(host)
    devices: dict[str, Device] = {}
    processes: list[Process] = []
    in_pods: list[Process] = []
    warnings = []
    for pid in sorted(map(int, host.names("/proc", "[0-9]*")) if among is None else among):
        paths = cgroups(host, pid)
        ranks = [(group.rank(pid, paths), group) for group in groups] if paths else []
        nearest = max((rank for rank, _group in ranks if rank is not None), default=None)
        near = [group for rank, group in ranks if rank is not None and rank == nearest]
        if not near and not by_device:
            continue
        names = set(opened(host, pid, files).values())
        if names and not devices:
            devices = owners(host, plan["npus"])
        held = {devices[name] for name in names if name in devices}
        near = near or [group for group in by_device if held & group.keys]
        if not near:
            continue
        npus = {Device.of(npu): npu for group in near for npu in group.npus}
        chosen = sorted(held & set(npus)) or rank_of(host, pid, plan, npus) or sorted(npus)
        process = Process(pid, host.read("/proc/%d/comm" % pid) or "ended", [npus[key] for key in chosen], near[0].title)
        if held and not held & set(npus):
            others = ", ".join(device.title for device in sorted(held))
            text = "%s was found by %s and has the device of %s open; start it in the slice of that %s"
            warnings.append(text % (process.title, process.found_by, others, min(held).kind.upper()))
        (in_pods if of_kubernetes(paths or ()) and not pods else processes).append(process)
    warnings += [
        "%s runs in a pod of Kubernetes, where the kubelet places threads, and is left alone" % process.title for process in in_pods
    ]
    pids = {process.pid for process in processes + in_pods}
    for group in groups if among is None else ():
        missing = sorted((group.pids or set()) - pids)
        warnings += ["there is no process %d of %s (any more)" % (pid, titles_of(group.npus)) for pid in missing]
    return Found(processes, warnings)


def rank_of(host: Host, pid: int, plan: Mapping[str, Any], npus: Collection[Device]) -> list[Device]:
    """Return the NPU or GPU of a process, among some, by what its launcher gave it; none where nothing tells.

    Its environment has that until the program sets its title, which overwrites it. A job of Slurm numbers the devices that its cgroup
    allows, which cannot be seen from outside.
    """
    variables, command = variables_of(started_with(host, pid)), command_of(host, pid)
    folder = device_folder(host, pid) if host.live else "/dev"
    if "SLURM_JOB_ID" in variables or not folder:
        return []
    try:
        rank, root = index_of(variables, command), host.path(posixpath.dirname(folder))
        for kind in [kind for kind in VARIABLES if any(npu.kind == kind for npu in npus) and (rank or VARIABLES[kind] in variables)]:
            seen = visible(kind, there(root, kind, plan["npus"], plan.get("lost") or ()), variables)
            index = 0 if len(seen) == 1 else rank[0] if rank else len(seen)
            entry = seen[index].entry if index < len(seen) else None
            if entry and Device.of(entry) in npus:
                return [Device.of(entry)]
    except ValueError:
        pass
    return []


def threads(host: Host, pid: int, only: Iterable[int] | None = None) -> list[tuple[int, str]]:
    """Return ``[(thread id, name)]`` of a process, ascending; none when it has ended. The kernel keeps 15 characters of a name."""
    folder = "/proc/%s/task" % pid
    found = []
    for tid in sorted(map(int, host.names(folder, "[0-9]*")) if only is None else only):
        name = host.read("%s/%d/comm" % (folder, tid))
        if name is not None:
            found.append((tid, name))
    return found
