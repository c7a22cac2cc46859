# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether work that uses NPUs stays in their pools, and inside has all of what it is to have: each thread the CPUs of its role, and its
memory policy the nodes of the plan; and what in it binds itself. Reads only.

What was written proves nothing: a mask that systemd, an engine or the program itself set stays in force within a wider cpuset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence, Set, Tuple

from .._base.cpulist import compress, expand
from .._base.findings import Device, coded, with_lost
from .._features.adopt import record
from .._features.adopt.choosing import Pods
from .._features.feature import Comparing
from .._features.slices.drift import check_binders
from .._features.threads import torch_npu
from .._features.threads.placing import PATTERNS, Patterns, completed, cpus_of_roles, role_of
from .._features.threads.tasks import threads
from .._host.host import Forbidden, Host
from .._kernel.interrupts import Thread
from .._kernel.machine import architecture
from .._kernel.masks import online
from .._kernel.memory import policy_of
from .._kernel.processes import started_with
from .._state.plan_file import memory_nodes
from .._users.finding import by_process, is_whole, pids_of, ranks
from .._users.groups import in_group, title_of
from .._users.pools import Placement, called, in_other_pools, outside_user, placement, pool_of, rank_remarks
from .._users.inherited import Origin, binder_of, origin
from .codes import WORK_OUTSIDE_POOL

if TYPE_CHECKING:
    from .._base.documents import Live, NpuUser, OutsideUser, Plan, PlanEntry, UnitSets

_Row = Tuple[int, Set[int], Origin]
"""A process, the CPUs that it has, and whose doing that is."""
ARM = "aarch64"
"""Where workers bind themselves, by the kernel's name."""
_STRICT = "bind"
_SETS_POLICY = "start it without numactl or its own memory binding, or set npu_affinity_memory to what it needs"


class Judge(NamedTuple):
    """What work is measured by. ``expected``: the CPUs of units that get a part of a pool; ``patterns``: names of threads by role;
    ``pods``: whether pods are adopted, ``ranks``: whether each rank of a service or container is to have its own pool."""

    host: Host
    plan: Plan
    expected: Mapping[str, set[int]] = {}
    patterns: Patterns = PATTERNS
    host_binds: bool = True
    pods: bool = False
    ranks: bool = False

    @classmethod
    def of(cls, host: Host, plan: Plan, expected: Iterable[UnitSets], live: Live) -> Judge:
        """Return what work is measured by, from ``expected`` and ``live`` of a desired state."""
        parts = {entry["unit"]: set(expand(entry["cpus"])) for entry in expected if entry["unit"].startswith(("npu", "gpu"))}
        adopt, slices, roles = live.get("adopt"), live.get("slices"), live.get("threads")
        host_binds = not slices or slices.get("bound_by", "host") == "host"
        adopts_pods = bool(adopt and adopt.get("pods")) and not Pods(host, True).why()
        return cls(host, plan, parts, completed(roles and roles.get("patterns")), host_binds, adopts_pods, bool(adopt))

    def placement(self, users: Iterable[NpuUser]) -> Placement:
        """Compare users with the pools of their NPUs, and those inside with their roles: these are ``outside`` with a cause.

        Work of many, each with NPUs of its own, is compared process by process.
        """
        npus = with_lost(self.plan)
        parts = [by_process(self.host, npus, user) if len(user["npus"]) > 1 and not is_whole(user) else [user] for user in users]
        users = [user for part in parts for user in part]
        result = placement(users, self.plan, self.host_binds, self.pods)
        away = {user["title"] for user in result.outside}
        for user in users if self.ranks else ():
            of_user = ranks(self.host, npus, user) if len(user["npus"]) > 1 and called(user) not in away else []
            outside = placement(of_user, self.plan, self.host_binds, self.pods).outside
            result.outside.extend(outside)
            away.update([called(user)] if outside else [])
        confined = [user for user in map(self.confined, (user for user in users if called(user) not in away)) if user]
        return result._replace(inside=result.inside - len(confined), outside=result.outside + confined)

    def confined(self, user: NpuUser) -> OutsideUser | None:
        """Return a user that has less than it is to have, with the cause; None for one that has all, and for one that is not inside its
        pool at all. The kubelet places pods."""
        pool = pool_of(user, self.plan)
        if pool is None or user["kind"] == "pod":
            return None
        for unit in user["group"].split("/"):
            pool = pool & self.expected.get(unit, pool) or pool
        short = [row for part in by_process(self.host, with_lost(self.plan), user) for row in self._of_process(part, pool)]
        if not short:
            return None
        cpus = {cpu for _pid, mask, _origin in short for cpu in mask}
        cause = short[0][2]
        pids = sorted({pid for pid, *_others in short})
        return outside_user(user, pids, compress(cpus), compress(pool), cause.remedy, cause=cause.why)

    def _of_process(self, user: NpuUser, pool: set[int]) -> Iterator[_Row]:
        """Yield what a process has too little of."""
        for pid in [process["pid"] for process in user["processes"]]:
            if torch_npu.setting(started_with(self.host, pid)):
                continue  # places its threads on the CPUs that it is given
            keys = {(npu["kind"], npu["id"]) for npu in user["npus"]}
            entries = [npu for npu in with_lost(self.plan) if Device.of(npu)[:2] in keys]
            roles = cpus_of_roles(entries, online(self.host) & pool)[0]
            yield from self._threads(pid, roles, pool)
            yield from self._memory(pid, entries, pool)

    def _threads(self, pid: int, roles: Mapping[str, set[int]], pool: set[int]) -> Iterator[_Row]:
        short: dict[tuple[str, str], list[str]] = {}
        seen = threads(self.host, pid)
        for tid, name in seen:
            role = role_of(name, self.patterns)
            text = Thread.of_process(pid, tid, name).read(self.host)
            mask = set(expand(text or ""))
            if text and role != "leave" and mask <= pool and len(mask) < len(roles[role]):
                short.setdefault((role, text), []).append(name)
        for (role, text), names in short.items():
            cause = origin(self.host, pid, set(expand(text)), roles[role])
            if len(names) < len(seen):
                cause = cause._replace(why="%d of its %d threads, such as %s: %s" % (len(names), len(seen), names[0], cause.why))
            yield pid, set(expand(text)), cause

    def _memory(self, pid: int, entries: Sequence[PlanEntry], pool: set[int]) -> Iterator[_Row]:
        nodes = {node for npu in entries for node in expand(memory_nodes(npu))}
        policy = policy_of(self.host, pid) if nodes and all(map(memory_nodes, entries)) else None
        if policy and (not policy[1] <= nodes or policy[0] == _STRICT and policy[1] < nodes):
            why = "its memory policy is %s:%s, and the plan has memory nodes %s" % (policy[0], compress(policy[1]), compress(nodes))
            binder = binder_of(self.host, pid) or Origin("", _SETS_POLICY)
            yield pid, pool, binder._replace(why="%s (%s)" % (why, binder.why) if binder.why else why)


def check_users(comparing: Comparing, users: Sequence[NpuUser], compared: Collection[str] = ()) -> None:
    """Note what uses NPUs and runs outside their pools, except for units that are drift by themselves, and what binds itself.

    Workers that bind themselves have a pool each, whatever service they are of. ``compared`` are the units whose processes were looked at.
    """
    host, findings, plan = comparing.host, comparing.findings, comparing.plan
    alone = not comparing.host_binds and architecture(host) == ARM and all(Device.of(npu).kind == "npu" for npu in plan["npus"])
    _check_binders(comparing, [user for user in users if not any(in_group(user["group"], unit) for unit in compared)])
    if alone:
        users = [part for user in users for part in (by_process(host, with_lost(plan), user) if user["processes"] else [user])]
    result = Judge.of(host, plan, comparing.wanted.expected, comparing.wanted.live).placement(users)
    drifted = {finding.unit for finding in findings.drift if finding.unit}
    findings.outside = [user for user in result.outside if user["unit"] not in drifted]
    if alone:
        findings.remarks += coded(WORK_OUTSIDE_POOL, in_other_pools([user for user in findings.outside if "cause" not in user], plan))
    findings.remarks += coded(WORK_OUTSIDE_POOL, result.remarks()) + coded("NPU_RANKS_PLACED", rank_remarks(users, plan))


def _check_binders(comparing: Comparing, users: Sequence[NpuUser]) -> None:
    """Name what binds itself in work that is confined to the pools of its NPUs without a slice or drop-in of these, as adopted work is."""
    host, findings = comparing.host, comparing.findings
    adopted = _adopted(host) if users else {}
    for user in users:
        pool, granted = pool_of(user, comparing.plan), set(expand(user["cpus"]))
        pids = {process["pid"] for process in user["processes"]}
        groups = {entry["group"] for key, entry in adopted.items() if record.kind_of(key) != record.PROCESS}
        is_adopted = user["group"] in groups or any(record.pid_of(key) in pids for key, _entry in record.processes(adopted))
        if user["kind"] == "pod" or not pool or not (is_adopted or granted and granted <= pool):
            continue
        title = title_of(user)
        findings.devices.setdefault(title, Device(user["npus"][0]["kind"], user["npus"][0]["id"], ""))
        check_binders(comparing, title, ["/proc/%d" % pid for pid in pids_of(host, user)], compress(pool))


def _adopted(host: Host) -> dict[str, record.Entry]:
    """Return what is recorded as adopted, as far as the record can be read."""
    try:
        return record.entries(host)
    except (Forbidden, ValueError):
        return {}
