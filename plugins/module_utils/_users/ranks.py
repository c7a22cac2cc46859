# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranks of a service or container: its processes that have some of its devices open, each with its own.

Ranks count from 0 by their devices, as the local ranks of a job do. Titles and environments of processes are no better witness: engines
pass ranks through pipes, and overwrite both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from .._base.cpulist import compress, expand
from .._base.findings import Device
from .._base.table import count
from .._host.host import Host
from .._kernel.memory import sampled
from .devices import Accelerator
from .finding import OPEN, by_process, is_whole
from .groups import title_of

if TYPE_CHECKING:
    from .._base.documents import NpuUser, Plan, Rank


def ranks(host: Host, npus: Iterable[Accelerator], user: NpuUser, alone: bool = False) -> list[NpuUser]:
    """Return each rank as a user of its own; with ``alone`` also a process that has all devices of its service. None of other work."""
    if not is_whole(user) or user["witness"] != OPEN:
        return []
    parts = [part for part in by_process(host, npus, user) if part["npus"] and (alone or part["npus"] != user["npus"])]
    held = sorted({_keys(part) for part in parts})
    for part in parts:
        part["rank"] = held.index(_keys(part))
        part["name"] = "rank %d of %s" % (part["rank"], title_of(user))
        part.update({"container": None, "engine": ""})
        if part["kind"] != "pod":
            part["kind"] = "other"
    return sorted(parts, key=lambda part: (part["rank"], part["processes"][0]["pid"]))


def _keys(user: NpuUser) -> tuple[tuple[str, int], ...]:
    return tuple((npu["kind"], npu["id"]) for npu in user["npus"])


def described(host: Host, npus: Iterable[Accelerator], user: NpuUser, problems: list[str]) -> list[Rank]:
    """Return the ranks of a user with their CPUs, and how many percent of their pages lie on the nodes of their devices."""
    nodes: dict[tuple[str, int], list[int]] = {}
    for npu in npus:  # of a topology, or of a plan
        local_nodes = ([] if npu["numa"] is None else [npu["numa"]]) if "numa" in npu else expand(npu.get("mems") or "")
        nodes[Device.of(npu)[:2]] = local_nodes
    described_ranks: list[Rank] = []
    for part in ranks(host, npus, user):
        process, lists, local = part["processes"][0], [nodes.get(key, []) for key in _keys(part)], None
        try:
            pages = sampled(host, process["pid"]) if all(lists) else {}
            near = sum(number for node, number in pages.items() if any(node in local_nodes for local_nodes in lists))
            local = round(100 * near / sum(pages.values())) if pages else None
        except ValueError as error:
            problems.append("%s." % error)
        described_ranks.append({"rank": part["rank"], "pid": process["pid"], "npus": part["npus"], "cpus": process["cpus"], "local": local})
    return described_ranks


def titles(user: NpuUser, plan: Plan) -> list[str]:
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


def remarks(users: Iterable[NpuUser], plan: Plan) -> list[str]:
    """Return a sentence for each user with ranks."""
    return ["; ".join(lines) for lines in (titles(user, plan) for user in users) if lines]
