# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare where users of NPUs run with the pools that a plan gives these NPUs. Pure functions: nothing here reads a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Sequence

from .._base.cpulist import compress, expand
from .._base.findings import Device, noun, with_lost
from .._base.table import count
from .._kernel.memory import gib
from .groups import is_of_login, listed, title_of

if TYPE_CHECKING:
    from .._base.documents import NpuUser, OutsideUser, Plan, Rank

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
_WORKLOAD = "add {name: NAME, npus: [%s]} to npu_affinity_workloads, bind, and start it again in the slice of this workload"
_UNASSIGNED = "%s: no NPU of the plan is known to have this device, so its pool is unknown; if a card is lost, use another NPU"
_OTHER_POOL = (
    "%s runs in the pool of %s, likely because vLLM-Ascend from 0.24 until its fixes of September 2026 (0.26.0, 0.27.1) chooses a pool by "
    "local rank: update it, or set npu_affinity_bound_by: host and enable_cpu_binding=false"
)


class Placement(NamedTuple):
    """How many users run ``inside`` their pools, those that run ``outside``, and texts: ``pods`` on those that do and are not adopted,
    ``unassigned`` on those that hold a device that is not known to be that of an NPU of the plan."""

    inside: int
    outside: List[OutsideUser]
    pods: List[str]
    unassigned: List[str]

    def remarks(self) -> list[str]:
        texts = [(_PODS, self.pods), (_UNASSIGNED, self.unassigned)]
        return [text % "; ".join(users) for text, users in texts if users]


def placement(users: Sequence[NpuUser], plan: Plan, host_binds: bool = True, pods: bool = False) -> Placement:
    """Compare where users run with the union of the pools of their NPUs: a user of two NPUs may run on the CPUs of both. ``host_binds``:
    workers do not bind themselves; ``pods``: those are adopted.

    Users that have not opened their device are not judged, nor are those with an NPU that has no CPUs in the plan, or with lost ones alone.
    """
    result = Placement(0, [], [], [])
    for user in users:
        if user["processes"] and user.get("unassigned"):
            devices = listed(["/dev/" + name for name in user["unassigned"]])
            result.unassigned.append("%s (pid %s) holds %s" % (title_of(user), _pids(user), devices))
        cpus = {cpu for process in user["processes"] for cpu in expand(process["cpus"])}
        pool = pool_of(user, plan)
        if not cpus or pool is None:
            continue
        if cpus <= pool:
            result = result._replace(inside=result.inside + 1)
        elif user["kind"] == "pod" and pods:
            result.outside.append(_outside(user, compress(cpus), compress(pool), _ADOPT_PODS))
        elif user["kind"] == "pod":
            result.pods.append("%s runs on CPUs %s, pool %s" % (called(user), compress(cpus), compress(pool)))
        else:
            result.outside.append(_outside(user, compress(cpus), compress(pool), ADOPT if host_binds else _ADOPT_WORKERS))
    return result


def pool_of(user: NpuUser, plan: Plan) -> set[int] | None:
    """Return the CPUs of all NPUs of a user, or None if not all have CPUs in the plan, or all are lost."""
    planned = {Device.of(npu)[:2] for npu in plan["npus"]}
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in with_lost(plan)}
    keys = {(npu["kind"], npu["id"]) for npu in user["npus"]}
    if planned.isdisjoint(keys) or user.get("unassigned") or not pools.keys() >= keys:
        return None
    return {cpu for key in keys for cpu in expand(pools[key])}


def in_other_pools(outside: Iterable[OutsideUser], plan: Plan) -> list[str]:
    """Return a sentence on each user that runs in the pool of another NPU, where workers bind themselves; ``next`` then says what helps."""
    sentences = []
    for user in outside:
        cpus = set(expand(user["cpus"]))
        others = [Device.of(npu).title for npu in plan["npus"] if cpus <= set(expand(npu["pool"]))]
        if others:
            user["next"], user["command"] = "update vLLM-Ascend and restart it, or set npu_affinity_bound_by: host", ""
            sentences.append(_OTHER_POOL % (user["title"], others[0]))
    return sentences


def sentence(outside: Iterable[OutsideUser]) -> str:
    """Return one sentence on what runs outside its pool, '' for nothing."""
    users, texts = list(outside), []
    for is_confined, one, several in (
        (False, "1 %s process runs outside its pool", "%d %s processes run outside their pool"),
        (True, "1 %s process is not placed as planned", "%d %s processes are not placed as planned"),
    ):
        same = [user for user in users if ("cause" in user) == is_confined]
        number, of = sum(len(user["pids"]) for user in same), noun(npu for user in same for npu in user["npus"])
        where = ["%s on CPUs %s, pool %s" % (user["title"], user["cpus"], user["pool"]) for user in same]
        where = ["%s (%s)" % (text, user["cause"]) if is_confined else text for text, user in zip(where, same)]
        texts += ["%s: %s" % (one % of if number == 1 else several % (number, of), listed(where))] if same else []
    return "; ".join(texts)


def with_remedies(outside: Sequence[OutsideUser]) -> str:
    """Return :func:`sentence`, and how that is moved which a bind with npu_affinity_adopt: now would not."""
    by_remedy: dict[str, list[str]] = {}
    for user in outside:
        if not user["adoptable"]:
            by_remedy.setdefault(user["next"], []).append(user["name"])
    texts = ["%s: %s" % (listed(names), remedy) for remedy, names in by_remedy.items()]
    return "; ".join(filter(None, [sentence(outside), listed(texts, "; ")]))


def lines(compared: Placement) -> list[str]:
    """Return a line for each user outside its pool, where it runs and where it would, and one that counts those inside."""
    inside = "%d more inside their pools" % compared.inside
    outside = ["%s: runs on CPUs %s, pool %s%s" % (user["title"], user["cpus"], user["pool"], _memory(user)) for user in compared.outside]
    more = ["%d more outside their pools" % (len(outside) - _SHOWN)] if len(outside) > _SHOWN else []
    return [*outside[:_SHOWN], *more, *compared.remarks(), *([inside] if compared.inside and outside else [])]


def _memory(user: OutsideUser) -> str:
    held = ["%s on node %s" % (gib(amount * _MIB), node) for node, amount in user.get("memory_mib", {}).items()]
    return ", memory %s" % " and ".join(held) if held else ""


def _outside(user: NpuUser, cpus: str, pool: str, adopt: str) -> OutsideUser:
    around = user.get("around")
    fits = around is None or set(expand(pool)) <= set(expand(around))
    has_command = user["engine"] in ("docker", "podman") and not _is_rootless(user) and not _is_service(user)
    command = "%s update --cpuset-cpus %s %s" % (user["engine"], pool, user["name"]) if fits and has_command else ""
    adopted = adopt if fits and user["witness"] != "tool" else ""  # which is not asked again when work is adopted
    remedy = command or "%s%s" % (remedy_of(user, adopted), "" if fits else _AROUND % around)
    outside = outside_user(user, [process["pid"] for process in user["processes"]], cpus, pool, remedy)
    return {**outside, "command": command, "adoptable": adopted in (ADOPT, _ADOPT_PODS)}


def outside_user(user: NpuUser, pids: list[int], cpus: str, pool: str, remedy: str, cause: str | None = None) -> OutsideUser:
    """Return a user outside its pool, or one that has less than that because of a cause."""
    outside: OutsideUser = {
        "title": called(user),
        "name": user["name"],
        "kind": user["kind"],
        "unit": user["unit"],
        "npus": user["npus"],
        "pids": pids,
        "cpus": cpus,
        "pool": pool,
        "next": remedy,
        "command": "",
        "adoptable": False,
    }
    if "memory_mib" in user:
        outside["memory_mib"] = user["memory_mib"]
    if cause is not None:
        outside["cause"] = cause
    return outside


def called(user: NpuUser) -> str:
    """Return how a user is called, with its processes and NPUs: ``vllm.service (pid 7, NPU 0)``."""
    kinds = sorted({npu["kind"] for npu in user["npus"]}, reverse=True)
    npus = ["%s %s" % (kind.upper(), compress(npu["id"] for npu in user["npus"] if npu["kind"] == kind)) for kind in kinds]
    return "%s (pid %s, %s)" % (title_of(user), _pids(user), ", ".join(npus))


def _pids(user: NpuUser) -> str:
    return listed([str(process["pid"]) for process in user["processes"]])


def remedy_of(user: NpuUser, adopt: str = "") -> str:
    """Return what moves a user to its CPUs that no command alone can move. ``adopt``: how it is adopted, '' where it cannot be."""
    first, remedies = "%(kind)s-%(id)d" % user["npus"][0], [adopt] if adopt else []
    npus = ", ".join(str(npu["id"]) if npu["kind"] == "npu" else "gpu-%d" % npu["id"] for npu in user["npus"])
    if user["kind"] == "pod":
        return adopt or "see docs/kubelet.md"
    if _is_rootless(user):
        return "%s (a rootless container cannot start in such a slice)" % (adopt or "run it as root")
    if _is_service(user):
        remedies.append("add {unit: %s, npus: [%s]} to npu_affinity_services, bind and restart it" % (user["unit"], npus))
    elif len(user["npus"]) > 1:
        remedies.append(_WORKLOAD % npus)
    elif user["container"]:
        remedies.append("start it again with --cgroup-parent=%s.slice" % first)
    elif user["kind"] == "other" and not user["unit"]:
        remedies.append("start it again in %s.slice (filter npu.affinity.launch)" % first)
    else:
        remedies.append("start it again: npu-affinity run %s -- COMMAND" % first)
    return ", or ".join(remedies)


def rank_titles(user: NpuUser, plan: Plan) -> list[str]:
    """Return a line for each rank of a gathered user: ``rank 3 of vllm.service: NPU 3, 24 CPUs, 98 % local pages``."""
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in plan["npus"]}
    texts = []
    for rank in user.get("ranks", ()):
        keys = [(npu["kind"], npu["id"]) for npu in rank["npus"]]
        cpus, pool = set(expand(rank["cpus"])), {cpu for key in keys for cpu in expand(pools.get(key, ""))}
        where = count(len(cpus), "CPU") if not pool or cpus <= pool else "CPUs %s, pool %s" % (compress(cpus), compress(pool))
        devices = " and ".join("%s %d" % (kind.upper(), number) for kind, number in keys)
        texts.append("rank %d of %s: %s, %s, %s" % (rank["rank"], title_of(user), devices, where, local_pages(rank)))
    return texts


def local_pages(rank: Rank) -> str:
    return "local pages not known" if rank["local"] is None else "%d %% local pages" % rank["local"]


def rank_remarks(users: Iterable[NpuUser], plan: Plan) -> list[str]:
    """Return a sentence for each user with ranks."""
    return ["; ".join(lines) for lines in (rank_titles(user, plan) for user in users) if lines]


def _is_rootless(user: NpuUser) -> bool:
    return bool(user["container"]) and is_of_login(user["group"])


def _is_service(user: NpuUser) -> bool:
    return bool(user["unit"]) and str(user["unit"]).endswith(".service") and user["kind"] != "session"
