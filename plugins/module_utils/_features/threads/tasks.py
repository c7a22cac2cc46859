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
from typing import TYPE_CHECKING, Any, Collection, Iterable, Mapping, NamedTuple, Sequence

from ..._base.cpulist import expand
from ..._host.host import Host
from ..._kernel.device_opens import device_folder
from ..._kernel.processes import command_of, control_groups, started_with, variables_of
from ..._ranks import VARIABLES, accessible, index_of, visible
from ..._base.findings import Device, noun
from ..._state.plan_file import PATH as PLAN, plan_npus, read
from ..._users.devices import numbers, opened, owners
from ..._users.groups import of_pods

if TYPE_CHECKING:
    from ..._base.documents import Plan, PlanEntry, WantedProcesses

ROLES = ("main", "acl", "release", "kv")
_SETTING = "npu_affinity_threads_processes"


class Process(NamedTuple):
    """A process and where it was found: ``npus`` are the plan's entries that it belongs to, ``found_by`` a short text."""

    pid: int
    name: str
    npus: Sequence[Mapping[str, Any]]
    found_by: str

    @property
    def title(self) -> str:
        return "process %d (%s) of %s" % (self.pid, self.name, titles_of(self.npus))


def plan_in_force(host: Host) -> Plan:
    """Return the plan that was bound on the host. Raises ``ValueError`` with a sentence if there is none, or a broken one."""
    plan = read(host)
    if plan is None:
        raise ValueError("there is no %s: this host was never bound; bind it, or give a plan" % PLAN)
    return plan


def titles_of(npus: Iterable[Mapping[str, Any]]) -> str:
    return " and ".join(Device.of(npu).title for npu in npus)


class Group(NamedTuple):
    """Requested processes, and the plan's entries ``npus`` that they belong to.

    They are those of a ``unit`` (a slice or a service), those with certain ``pids``, or those that have a device of the NPUs open.
    """

    npus: Sequence[PlanEntry]
    unit: str = ""
    pids: Collection[int] = ()

    @property
    def by_device(self) -> bool:
        return not (self.unit or self.pids)

    @property
    def title(self) -> str:
        return self.unit or ("an open device" if self.by_device else "its number")

    def rank(self, pid: int, paths: list[list[str]]) -> int | None:
        """Return how near the group is to a process, or None: a number is nearer than any unit, an inner unit nearer than an outer.

        Only slices may be above a unit: another system's unit of the same name, in a container or of a user, is not meant.
        """
        if pid in self.pids:
            return sys.maxsize
        above = [path[: path.index(self.unit)] for path in paths if self.unit and self.unit in path]
        return max((len(names) for names in above if all(name.endswith(".slice") for name in names)), default=None)


def groups_of(plan: Plan, wanted: Iterable[WantedProcesses] = ()) -> list[Group]:
    """Return the groups that are wanted; without any, one for the slice of every NPU of the plan.

    ``npus`` are logic ids, none means all. An element without slice, unit, pids and devices means the slices of its NPUs. Raises
    ``ValueError`` for what is not a plan, for an NPU that the plan does not have, and for roles with CPUs outside their pool.
    """
    by_id = {npu["id"]: npu for npu in reversed(plan_npus(plan))}
    for npu in by_id.values():
        title = Device.of(npu).title
        pool = set(expand(npu["pool"], "pool of %s" % title))
        for role in ROLES:
            if not pool.issuperset(expand(npu.get(role) or "", "%s of %s" % (role, title))):
                text = "role %s of %s has CPUs %s, which are not all in its pool %s; plan and bind again"
                raise ValueError(text % (role, title, npu.get(role), npu["pool"]))
    groups = []
    for entry in wanted or [{}]:
        asked, pids = entry.get("npus") or [], entry.get("pids") or []
        missing = [str(number) for number in asked if number not in by_id]
        if missing:
            has = ", ".join(map(str, sorted(by_id))) or "none"
            raise ValueError("%s: %s %s is not in the plan, which has %s" % (_SETTING, noun(plan["npus"]), ", ".join(missing), has))
        units = [name for name in (entry.get("slice"), entry.get("unit")) if name]
        if not asked and (units or pids):
            subject = units[0] if units else "process %s" % ", ".join(map(str, pids))
            raise ValueError("%s: %s names no NPU or GPU; give the logic ids of npus" % (_SETTING, subject))
        npus = [by_id[number] for number in sorted(set(asked))] or plan["npus"]
        groups += [Group(npus, name) for name in units]
        if pids:
            groups.append(Group(npus, pids=set(pids)))
        if entry.get("devices"):
            groups.append(Group(npus))
        elif not units and not pids:
            groups += [Group([npu], npu["slice"]) for npu in npus if npu.get("slice")]
    return groups


def cgroups(host: Host, pid: int) -> list[list[str]]:
    """Return the cgroup paths of a process as lists of names, one per hierarchy; none when there is no such process."""
    return [path.strip("/").split("/") for _controllers, path in control_groups(host, pid)]


def find(
    host: Host, plan: Plan, groups: Sequence[Group], pods: bool = False, among: Iterable[int] | None = None
) -> tuple[list[Process], list[str]]:
    """Return processes by number, and warnings about what is not there or left alone. One in several groups belongs to the nearest.

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
        near = near or [group for group in by_device if held.intersection(map(Device.of, group.npus))]
        if not near:
            continue
        npus = {Device.of(npu): npu for group in near for npu in group.npus}
        chosen = sorted(held & npus.keys()) or rank_of(host, pid, plan, npus) or sorted(npus)
        process = Process(pid, host.read("/proc/%d/comm" % pid) or "ended", [npus[key] for key in chosen], near[0].title)
        if held and not held & npus.keys():
            others = ", ".join(device.title for device in sorted(held))
            text = "%s was found by %s and has the device of %s open; start it in the slice of that %s"
            warnings.append(text % (process.title, process.found_by, others, min(held).kind.upper()))
        (in_pods if any(map(of_pods, paths)) and not pods else processes).append(process)
    text = "%s runs in a pod of Kubernetes, where the kubelet places threads, and is left alone"
    warnings += [text % process.title for process in in_pods]
    missing = [(pid, group) for group in groups for pid in sorted(set(group.pids) - {process.pid for process in processes + in_pods})]
    warnings += ["there is no process %d of %s (any more)" % (pid, titles_of(group.npus)) for pid, group in missing if among is None]
    return processes, warnings


def rank_of(host: Host, pid: int, plan: Plan, npus: Collection[Device]) -> list[Device]:
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
            seen = visible(kind, accessible(root, kind, plan["npus"], plan.get("lost") or ()), variables)
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
    tids = sorted(map(int, host.names(folder, "[0-9]*")) if only is None else only)
    names = ((tid, host.read("%s/%d/comm" % (folder, tid))) for tid in tids)
    return [(tid, name) for tid, name in names if name is not None]
