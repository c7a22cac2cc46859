# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory nodes of running work: narrowed on request alone, and only where its memory fits on those that are left.

The kernel kills where they are full, and the command that narrowed them succeeds (:mod:`_kernel.memory`). Only work that may use all nodes
of the group around it gets others. So what it gets back are all nodes, which moves nothing.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Iterable, Iterator

from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel import memory
from ..._kernel.masks import granted
from ..._state.plan_file import memory_nodes
from . import services

if TYPE_CHECKING:
    from .choosing import Target

_RATE = 50e6
"""Bytes per second that the kernel moves at least."""


class Nodes:
    """Chooses memory nodes for targets; ``move``: whether memory may move."""

    def __init__(self, host: Host, move: bool) -> None:
        self.host = host
        self.move = move
        self.room = memory.Room(host)

    def choose(self, target: Target, recorded: str) -> None:
        """Choose the nodes of a target's NPUs, or all where it is to leave the ``recorded`` ones, which an earlier run gave it."""
        if not target.by_group(self.host):
            if self.move and self.host.live and target.unit.endswith(".service") and not target.user["container"]:
                target.remark = "%s keeps its memory nodes: systemd cannot set those of services on this host" % target.title
            return
        everything = memory.nodes_with_memory(self.host)
        lists = [memory_nodes(npu) for npu in target.npus]
        nodes = {node for text in lists for node in expand(text)} & everything if all(lists) else set()
        found, target.mems_recorded = target.granted(self.host, "mems"), recorded
        target.mems_before = compress(found)
        if not found:
            return
        if nodes and found <= nodes:
            target.mems = compress(nodes) if recorded else ""
            return
        if nodes and self.move:
            why = self._refusal(target, found, nodes)
            if not why:
                target.mems = compress(nodes)
                return
            target.remark = "%s keeps memory nodes %s, and does not get those of its NPUs, %s: %s" % (
                target.title,
                compress(everything if recorded else found),
                compress(nodes),
                why,
            )
        target.mems = compress(everything) if recorded else ""

    def _refusal(self, target: Target, found: set[int], nodes: set[int]) -> str:
        """Return why a target cannot get memory nodes, '' if it can. What it moves takes its part of the room."""
        folder = target.folder(self.host)
        around = granted(self.host, posixpath.dirname(folder), "mems") if folder else None
        if around is None or not nodes <= around:
            return "the group around it grants %s only" % (compress(around or ()) or "none")
        if found != around and not target.mems_recorded:
            return "it was given its own when it was started"
        paths = services.memory_policies(self.host, target.unit) if not target.user["container"] else []
        if paths:
            return "it would not start again there with the memory policy in %s" % ", ".join(paths)
        used = memory.used_by_group(self.host, target.user["group"])
        if used is None:
            return "the kernel does not say where its memory lies (memory.numa_stat)"
        moved = memory.outside(used, nodes)
        left = self.room.take(target.user["group"], moved, nodes)
        if moved > left:
            text = "%s lies on others, there is room for %s, and the kernel would kill its processes"
            return text % (memory.gib(moved), memory.gib(left))
        target.moved = moved
        return ""


@contextlib.contextmanager
def patience(host: Host, targets: Iterable[Target]) -> Iterator[None]:
    """Let commands take as long as the memory that they move needs."""
    usual = host.timeout
    host.timeout += sum(target.moved for target in targets) / _RATE
    try:
        yield
    finally:
        host.timeout = usual
