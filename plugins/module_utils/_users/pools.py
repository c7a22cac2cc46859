# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare where users of NPUs run with the pools that a plan gives these NPUs. Pure functions: nothing here reads a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, NamedTuple

from .._cpulist import compress, expand
from .._plan_file import Device
from .sentences import listed, title_of

if TYPE_CHECKING:
    from .._documents import NpuUser, OutsideUser

_SHOWN = 8
_PODS = "%s: the kubelet places pods, and its CPU manager policy static gives them exclusive CPUs (docs/kubelet.md)"


class Placed(NamedTuple):
    """How many users run ``inside`` their pools, those that run ``outside``, and ``pods``, texts on those that do and are the kubelet's."""

    inside: int
    outside: List[OutsideUser]
    pods: List[str]

    def remarks(self) -> list[str]:
        return [_PODS % "; ".join(self.pods)] if self.pods else []


def placed(users: Iterable[NpuUser], plan: Mapping[str, Any]) -> Placed:
    """Compare where users run with the union of the pools of their NPUs: a user of two NPUs may run on the CPUs of both.

    Users that have not opened their device are not judged, nor are those with an NPU that has no CPUs in the plan.
    """
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in plan["npus"]}
    found = Placed(0, [], [])
    for user in users:
        keys = [(npu["kind"], npu["id"]) for npu in user["npus"]]
        cpus = {cpu for process in user["processes"] for cpu in expand(process["cpus"])}
        if not keys or not cpus or not all(key in pools for key in keys):
            continue
        pool = {cpu for key in keys for cpu in expand(pools[key])}
        if cpus <= pool:
            found = found._replace(inside=found.inside + 1)
        elif user["kind"] == "pod":
            found.pods.append("%s runs on CPUs %s, pool %s" % (_called(user), compress(cpus), compress(pool)))
        else:
            found.outside.append(_outside(user, compress(cpus), compress(pool)))
    return found


def sentence(outside: Iterable[OutsideUser]) -> str:
    """Return one sentence on what runs outside its pool, '' for nothing."""
    found = list(outside)
    number = sum(len(user["pids"]) for user in found)
    if not found:
        return ""
    head = "1 NPU process runs outside its pool" if number == 1 else "%d NPU processes run outside their pool" % number
    return "%s: %s" % (head, listed(["%s on CPUs %s, pool %s" % (user["title"], user["cpus"], user["pool"]) for user in found]))


def lines(found: Placed) -> list[str]:
    """Return a line for each user outside its pool, where it runs and where it would, and one that counts those inside."""
    inside = "%d more inside the pools of their NPUs" % found.inside
    outside = ["%s: runs on CPUs %s, pool %s" % (user["title"], user["cpus"], user["pool"]) for user in found.outside]
    more = ["%d more outside the pools of their NPUs" % (len(outside) - _SHOWN)] if len(outside) > _SHOWN else []
    return [*outside[:_SHOWN], *more, *found.remarks(), *([inside] if found.inside and outside else [])]


def _outside(user: NpuUser, cpus: str, pool: str) -> OutsideUser:
    return {
        "title": _called(user),
        "name": user["name"],
        "kind": user["kind"],
        "unit": user["unit"],
        "npus": user["npus"],
        "pids": [process["pid"] for process in user["processes"]],
        "cpus": cpus,
        "pool": pool,
        "next": _next(user, pool),
    }


def _called(user: NpuUser) -> str:
    pids = listed([str(process["pid"]) for process in user["processes"]])
    kinds = sorted({npu["kind"] for npu in user["npus"]}, reverse=True)
    npus = ["%s %s" % (kind.upper(), compress(npu["id"] for npu in user["npus"] if npu["kind"] == kind)) for kind in kinds]
    return "%s (pid %s, %s)" % (title_of(user), pids, ", ".join(npus))


def _next(user: NpuUser, pool: str) -> str:
    """Return what puts a user on its CPUs."""
    if user["engine"] in ("docker", "podman"):
        return "%s update --cpuset-cpus %s %s" % (user["engine"], pool, user["name"])
    if user["kind"] == "service":
        npus = ", ".join(str(npu["id"]) if npu["kind"] == "npu" else "gpu-%d" % npu["id"] for npu in user["npus"])
        return "npu_affinity_services: [{unit: %s, npus: [%s]}]; bind, then systemctl restart %s" % (user["unit"], npus, user["unit"])
    first = user["npus"][0]
    return "start it again: npu-affinity run %s-%d -- COMMAND" % (first["kind"], first["id"])
