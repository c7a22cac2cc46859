# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare where users of NPUs run with the pools that a plan gives these NPUs. Pure functions: nothing here reads a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, NamedTuple, Sequence

from .._base.cpulist import compress, expand
from .._base.findings import Device, noun, with_lost
from .._kernel.memory import gib
from . import advice
from .sentences import listed, title_of

if TYPE_CHECKING:
    from .._base.documents import NpuUser, OutsideUser

_SHOWN = 8
_MIB = 1 << 20
ADOPT = "bind with npu_affinity_adopt: now"
_ADOPT_WORKERS = "bind with npu_affinity_bound_by: host and npu_affinity_adopt: now"
_AROUND = " (the group around it grants CPUs %s only)"
_ADOPT_PODS = "bind with npu_affinity_adopt: now and npu_affinity_adopt_pods: true"
_PODS = (
    "%s: the kubelet places pods; its CPU manager policy static gives them exclusive CPUs, and with policy none "
    "npu_affinity_adopt_pods: true confines them (docs/kubelet.md)"
)

_UNASSIGNED = "%s: nothing in the plan is known to have that device, so where this work runs is not compared with a pool"
_OTHER_POOL = (
    "%s runs in the pool of %s, likely because vLLM-Ascend from 0.24 until its fixes of September 2026 (0.26.0, 0.27.1) chooses a pool by "
    "local rank: update it, or set npu_affinity_bound_by: host and enable_cpu_binding=false"
)


class Placed(NamedTuple):
    """How many users run ``inside`` their pools, those that run ``outside``, and texts: ``pods`` on those that do and are not adopted,
    ``unassigned`` on those that hold a device that is not known to be that of an NPU of the plan."""

    inside: int
    outside: List[OutsideUser]
    pods: List[str]
    unassigned: Sequence[str] = ()

    def remarks(self) -> list[str]:
        texts = [(_PODS, self.pods), (_UNASSIGNED, self.unassigned)]
        return [text % "; ".join(found) for text, found in texts if found]


def _holding(user: NpuUser) -> str:
    pids = listed([str(process["pid"]) for process in user["processes"]])
    return "%s (pid %s) holds %s" % (title_of(user), pids, listed(["/dev/" + name for name in user.get("unassigned", ())]))


def placed(users: Sequence[NpuUser], plan: Mapping[str, Any], host_binds: bool = True, pods: bool = False) -> Placed:
    """Compare where users run with the union of the pools of their NPUs: a user of two NPUs may run on the CPUs of both. ``host_binds``:
    workers do not bind themselves; ``pods``: those are adopted.

    Users that have not opened their device are not judged, nor are those with an NPU that has no CPUs in the plan, or with lost ones alone.
    """
    found = Placed(0, [], [], [_holding(user) for user in users if user["processes"] and user.get("unassigned")])
    for user in users:
        cpus = {cpu for process in user["processes"] for cpu in expand(process["cpus"])}
        pool = pool_of(user, plan)
        if not cpus or pool is None:
            continue
        if cpus <= pool:
            found = found._replace(inside=found.inside + 1)
        elif user["kind"] == "pod" and pods:
            found.outside.append(_outside(user, compress(cpus), compress(pool), _ADOPT_PODS))
        elif user["kind"] == "pod":
            found.pods.append("%s runs on CPUs %s, pool %s" % (called(user), compress(cpus), compress(pool)))
        else:
            found.outside.append(_outside(user, compress(cpus), compress(pool), ADOPT if host_binds else _ADOPT_WORKERS))
    return found


def pool_of(user: NpuUser, plan: Mapping[str, Any]) -> set[int] | None:
    """Return the CPUs of all NPUs of a user, or None if not all have CPUs in the plan, or all are lost."""
    planned = {Device.of(npu)[:2] for npu in plan["npus"]}
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in with_lost(plan)}
    keys = {(npu["kind"], npu["id"]) for npu in user["npus"]}
    if planned.isdisjoint(keys) or user.get("unassigned") or not pools.keys() >= keys:
        return None
    return {cpu for key in keys for cpu in expand(pools[key])}


def in_other_pools(outside: Iterable[OutsideUser], plan: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each user that runs in the pool of another NPU, where workers bind themselves; ``next`` then says what helps."""
    found = []
    for user in outside:
        cpus = set(expand(user["cpus"]))
        others = [Device.of(npu).title for npu in plan["npus"] if cpus <= set(expand(npu["pool"]))]
        if others:
            user["next"], user["command"] = "update vLLM-Ascend and restart it, or set npu_affinity_bound_by: host", ""
            found.append(_OTHER_POOL % (user["title"], others[0]))
    return found


def sentence(outside: Iterable[OutsideUser]) -> str:
    """Return one sentence on what runs outside its pool, '' for nothing."""
    users = list(outside)
    texts = []
    for one, several, found in (
        ("1 %s process runs outside its pool", "%d %s processes run outside their pool", [user for user in users if "cause" not in user]),
        (
            "1 %s process is not placed as planned",
            "%d %s processes are not placed as planned",
            [user for user in users if "cause" in user],
        ),
    ):
        number = sum(len(user["pids"]) for user in found)
        said = ["%s on CPUs %s, pool %s%s" % (user["title"], user["cpus"], user["pool"], _why(user)) for user in found]
        of = noun(npu for user in found for npu in user["npus"])
        texts += ["%s: %s" % (one % of if number == 1 else several % (number, of), listed(said))] if said else []
    return "; ".join(texts)


def _why(user: OutsideUser) -> str:
    return " (%s)" % user["cause"] if "cause" in user else ""


def lines(found: Placed) -> list[str]:
    """Return a line for each user outside its pool, where it runs and where it would, and one that counts those inside."""
    inside = "%d more inside their pools" % found.inside
    outside = ["%s: runs on CPUs %s, pool %s%s" % (user["title"], user["cpus"], user["pool"], _memory(user)) for user in found.outside]
    more = ["%d more outside their pools" % (len(outside) - _SHOWN)] if len(outside) > _SHOWN else []
    return [*outside[:_SHOWN], *more, *found.remarks(), *([inside] if found.inside and outside else [])]


def _memory(user: OutsideUser) -> str:
    held = ["%s on node %s" % (gib(amount * _MIB), node) for node, amount in user.get("memory_mib", {}).items()]
    return ", memory %s" % " and ".join(held) if held else ""


def _outside(user: NpuUser, cpus: str, pool: str, adopt: str) -> OutsideUser:
    around = user.get("around")
    fits = around is None or set(expand(pool)) <= set(expand(around))
    command = advice.command(user, pool) if fits else ""
    adopted = adopt if fits and user["witness"] != "tool" else ""  # which is not asked again when work is adopted
    remedy = command or "%s%s" % (advice.way(user, adopted), "" if fits else _AROUND % around)
    return _away(user, [process["pid"] for process in user["processes"]], cpus, pool, remedy, command)


def confined_user(user: NpuUser, pids: list[int], cpus: str, pool: str, remedy: str, cause: str) -> OutsideUser:
    """Return a user that has less than its pool, because of a cause."""
    found = _away(user, pids, cpus, pool, remedy)
    found["cause"] = cause
    return found


def _away(user: NpuUser, pids: list[int], cpus: str, pool: str, remedy: str, command: str = "") -> OutsideUser:
    found: OutsideUser = {
        "title": called(user),
        "name": user["name"],
        "kind": user["kind"],
        "unit": user["unit"],
        "npus": user["npus"],
        "pids": pids,
        "cpus": cpus,
        "pool": pool,
        "next": remedy,
        "command": command,
    }
    if "memory_mib" in user:
        found["memory_mib"] = user["memory_mib"]
    return found


def called(user: NpuUser) -> str:
    """Return how a user is called, with its processes and NPUs: ``vllm.service (pid 7, NPU 0)``."""
    pids = listed([str(process["pid"]) for process in user["processes"]])
    kinds = sorted({npu["kind"] for npu in user["npus"]}, reverse=True)
    npus = ["%s %s" % (kind.upper(), compress(npu["id"] for npu in user["npus"] if npu["kind"] == kind)) for kind in kinds]
    return "%s (pid %s, %s)" % (title_of(user), pids, ", ".join(npus))
