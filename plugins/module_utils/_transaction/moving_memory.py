# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that would move with a change of the memory nodes of running units: refused, unless it is wanted and fits."""

from __future__ import annotations

from typing import Mapping

from .._base.cpulist import expand
from .._host.host import Host
from .._kernel import memory
from .._state.files import States
from .._state.systemd import Systemd, settings, unit_of


def refuse_moving_memory(host: Host, systemd: Systemd, changes: Mapping[str, States], wanted: bool) -> None:
    """Raise ``ValueError`` where running units would lose memory nodes, unless that is ``wanted`` and the others have room for it."""
    everything, room = memory.nodes_with_memory(host), memory.Room(host)
    for path, (before, after) in changes.items():
        unit = unit_of(path)
        nodes = [settings(state.text).get("AllowedMemoryNodes", "") for state in (before, after)]
        old, new = (set(expand(value)) or everything for value in nodes)
        folder = systemd.cgroup(unit) if unit and not old <= new and systemd.populated(unit) else None
        if folder is None:
            continue
        used = memory.used_by_node(host, folder)
        moved = memory.outside(used or {}, new)
        left = room.take(folder, moved, new)
        change = "%s has running processes: changing its memory nodes from %s to %s would move" % (unit, nodes[0] or "all", nodes[1])
        if used and room.free and moved > left:
            raise ValueError(
                "%s %s, and memory nodes %s have room for %s: the kernel would kill processes of it. Stop what runs in it first, or allow "
                "it more nodes with npu_affinity_memory (wide, or none)" % (change, memory.gib(moved), nodes[1], memory.gib(left))
            )
        if not wanted:
            amount = " (%s)" % memory.gib(moved) if used else ""
            raise ValueError(
                "%s their pages%s, at hundreds of MB/s. Stop what runs in it first, or set npu_affinity_move_memory: true"
                % (change, amount)
            )
