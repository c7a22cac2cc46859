# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of running units that get other memory nodes: refused, unless it is wanted and fits.

The kernel moves pages with the nodes of a group since 5.15, and may leave some behind (Linux ``Documentation/admin-guide/cgroup-v2.rst``).
"""

from __future__ import annotations

import posixpath
from typing import Mapping

from .._base.cpulist import expand
from .._features.threads.tasks import Process
from .._host.host import Host
from .._kernel import memory
from .._kernel.processes import members
from .._state.files import States
from .._state.systemd import Systemd, settings, unit_of

_MIB = 1 << 20


class _Member(Process):
    """A process of a unit, which its title names; ``npus`` has the memory nodes of that."""

    @property
    def title(self) -> str:
        return "process %d (%s) of %s" % (self.pid, self.name, self.found_by)


class MovingMemory:
    """``moved`` are the bytes that move with the units that :meth:`look` was shown."""

    def __init__(self, host: Host, systemd: Systemd) -> None:
        self.host = host
        self.systemd = systemd
        self.moved = 0
        self._nodes: dict[str, str] = {}

    def look(self, changes: Mapping[str, States], wanted: bool) -> None:
        """Raise ``ValueError`` where running units would lose memory nodes, unless that is ``wanted`` and the others have room for it."""
        everything, room = memory.nodes_with_memory(self.host), memory.Room(self.host)
        for path, (before, after) in changes.items():
            unit = unit_of(path)
            nodes = [settings(state.text).get("AllowedMemoryNodes", "") for state in (before, after)]
            old, new = (set(expand(value)) or everything for value in nodes)
            folder = self.systemd.cgroup(unit) if unit and not old <= new and self.systemd.populated(unit) else None
            if folder is None:
                continue
            used = memory.used_by_node(self.host, folder)
            moved = memory.outside(used or {}, new)
            free = room.take(folder, moved, new)
            change = "%s has running processes: changing its memory nodes from %s to %s would move" % (unit, nodes[0] or "all", nodes[1])
            if used and free is not None and moved > free:
                raise ValueError(
                    "%s %s, and memory nodes %s have room for %s: the kernel would kill processes of it. Stop what runs in it first, or "
                    "allow it more nodes with npu_affinity_memory (wide, or none)" % (change, memory.gib(moved), nodes[1], memory.gib(free))
                )
            if not wanted:
                amount = " (%s)" % memory.gib(moved) if used else ""
                raise ValueError(
                    "%s their pages%s, at hundreds of MB/s. Stop what runs in it first, or set npu_affinity_move_memory: true"
                    % (change, amount)
                )
            from .._features.threads.memory import SMALL  # its imports cost a host whose memory stays more than the rest

            if used is None or moved >= SMALL * _MIB:
                self._nodes[folder] = nodes[1]
                self.moved += moved

    def finish(self) -> list[str]:
        """Move what the kernel left behind, and return sentences on what stays. The nodes of a process are those of its innermost unit."""
        sentences: list[str] = []
        seen: set[str] = set()
        if self._nodes:
            from .._features.threads.memory import move_all

        for folder, nodes in sorted(self._nodes.items(), reverse=True):
            unit = posixpath.basename(folder)
            pids = [pid for pid in members(self.host, folder) if pid not in seen]
            seen.update(pids)
            members_of_unit = [
                _Member(int(pid), self.host.read("/proc/%s/comm" % pid) or "", [{"id": unit, "memory_nodes": nodes}], unit) for pid in pids
            ]
            sentences += move_all(self.host, members_of_unit, unit)
        return sentences
