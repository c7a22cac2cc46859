# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of running work: moved to the nodes of its NPUs on request alone, and only where it fits there.

Groups get these nodes for new pages. The kernel may leave the old ones behind (Linux ``Documentation/admin-guide/cgroup-v2.rst``): 5.10 and
6.1 left all of them, 6.12 all of one group and none of another. So what lies elsewhere afterwards is moved, as it is for processes that no
group confines. It stays there at an undo.

The kernel kills where they are full, and the command that narrowed them succeeds (:mod:`_kernel.memory`). Only work that may use all nodes
of the group around it gets others. So what it gets back are all nodes, which moves nothing.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Sequence

from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel import memory
from ..._kernel.masks import granted
from ..._state.plan_file import memory_nodes
from ..threads.memory import SMALL, Unreadable, memory_of, missing_tool, move_all
from ..threads.placing import PATTERNS, kv_thread
from ..threads.tasks import Process
from . import services

if TYPE_CHECKING:
    from .target import Target

_MIB = 1 << 20
LINKS = (
    "%s transfers KV caches, and its links can time out while its memory moves; restart it there, or move its memory with "
    "npu_affinity_threads_memory_limit"
)


class Nodes:
    """Chooses memory nodes for targets; ``move``: whether memory may move."""

    def __init__(self, host: Host, move: bool) -> None:
        self.host = host
        self.move = move
        self.room = memory.Room(host)

    def choose(self, target: Target, written: Sequence[str]) -> None:
        """Choose the nodes of a target's NPUs. ``written`` are those that an earlier run gave its group, or each of its processes.

        A group that is to leave these gets all.
        """
        if not (target.by_group or (self.move and self.host.live)):
            return
        everything = memory.nodes_with_memory(self.host)
        lists = [memory_nodes(npu) for npu in target.npus]
        nodes = {node for text in lists for node in expand(text)} & everything if all(lists) else set()
        recorded = target.mems_recorded = written[0] if len(set(written)) == 1 else ""
        current = target.granted(self.host, "mems")
        if not target.by_group:
            current = set(expand(recorded)) or current or everything
        target.mems_before = compress(current)
        if not current:
            return
        if nodes and current <= nodes:
            target.mems = compress(nodes) if recorded else ""
            return
        if nodes and self.move:
            why = self._refusal(target, current, nodes)
            if not why:
                target.mems = compress(nodes)
                return
            values = target.title, compress(everything if recorded else current), compress(nodes), why
            target.remark = "%s keeps memory nodes %s, and does not get those of its devices, %s: %s" % values
        target.mems = compress(everything) if recorded and target.by_group else ""

    def _refusal(self, target: Target, current: set[int], nodes: set[int]) -> str:
        """Return why a target cannot get memory nodes, '' if it can. What it moves takes its part of the room."""
        folder = target.folder(self.host)
        inner = posixpath.dirname(folder) if folder and target.by_group else folder
        around = granted(self.host, inner, "mems") if inner else None if target.by_group else nodes
        if around is None or not nodes <= around:
            return "the group around it grants %s only" % (compress(around or ()) or "none")
        if target.by_group and current != around and not target.mems_recorded:
            return "it was given its own when it was started"
        paths = services.memory_policies(self.host, target.unit) if target.by_group and not target.user["container"] else []
        if paths:
            return "it would not start again there with the memory policy in %s" % ", ".join(paths)
        link = kv_thread(self.host, target.pids(self.host), {"kv": PATTERNS["kv"]})
        if link:
            return LINKS % link
        try:
            moved = memory.outside(self._used(target), nodes)
        except Unreadable as error:
            return str(error)
        if moved >= SMALL * _MIB and missing_tool(self.host):
            return missing_tool(self.host)
        key = target.user["group"] + ("" if target.by_group else "/%s" % target.pids(self.host))
        room = self.room.take(key, moved, nodes)
        if room is None:
            return "%s lies on others, and the room there is not known" % memory.gib(moved)
        if moved > room:
            text = "%s lies on others, there is room for %s, and the kernel would kill its processes"
            return text % (memory.gib(moved), memory.gib(room))
        target.moved = moved
        return ""

    def _used(self, target: Target) -> dict[int, int]:
        """Return ``{node: bytes}`` of a group as the kernel counts it, of processes as their page tables have it."""
        used = memory.used_by_group(self.host, target.user["group"]) if target.by_group else None
        if used is None:
            used = {}
            for pid in target.pids(self.host):
                for node, amount in (memory_of(self.host, pid) or {}).items():
                    used[node] = used.get(node, 0) + int(amount * _MIB)
        return used


def move(host: Host, target: Target) -> None:
    """Move what still lies outside the memory nodes of a target. What stays is a remark."""
    if not target.moved:
        return
    processes = [Process(pid, host.read("/proc/%d/comm" % pid) or "", list(target.npus), "") for pid in target.pids(host)]
    target.remark = "; ".join(move_all(host, processes, target.title))
