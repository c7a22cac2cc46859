# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind would do to the memory of units that run: narrowing their memory nodes moves it, and kills where it does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device, noun
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import gib
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.groups import in_group
from ansible_collections.npu.affinity.plugins.module_utils._users.sentences import title_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

_MIB = 1 << 20


@remark("NPU_MEMORY_ELSEWHERE")
def remarks_on_users(topology: Topology, plan: Plan, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for all work outside the slices that would not fit into the memory nodes of its NPUs, once it starts there.

    Adoption leaves its memory where it is.
    """
    room = (topology.get("memory") or {}).get("room_mib") or {}
    units = [entry["unit"] for entry in document.get("expected") or ()]
    entries = {Device.of(npu)[:2]: npu for npu in plan["npus"]}
    for user in topology.get("users") or ():
        held = [entries.get((npu["kind"], npu["id"])) for npu in user["npus"]]
        nodes = {node for npu in held if npu for node in expand(memory_nodes(npu))}
        moved = sum(mib for node, mib in user.get("memory_mib", {}).items() if int(node) not in nodes)
        left = sum(room.get(str(node), 0) for node in nodes)
        if nodes and None not in held and moved > left and not any(in_group(user["group"], unit) for unit in units):
            of = f"memory nodes than {compress(nodes)} of its {noun(user['npus'])}s"
            yield (
                f"{title_of(user)} has {gib(moved * _MIB)} on other {of}, which have room for "
                f"{gib(left * _MIB)}: started again in their slice it would not fit, and the kernel would kill its processes. Adopt it, "
                "which moves no memory (npu_affinity_adopt), or allow it more nodes with npu_affinity_memory (wide, or none)."
            )


def moved_mib(topology: Topology, document: Mapping[str, Any]) -> int:
    """Return how much memory of running units a bind would move. The memory of a unit counts in the slices around it, too."""
    found = {unit: moved for unit, _nodes, moved in _moves(topology, document)}
    outer = sum(found.pop(unit, 0) for unit in ("npu.slice", "gpu.slice"))
    return max(outer, sum(found.values()))


@remark("NPU_MEMORY_ELSEWHERE")
def remarks(topology: Topology, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every running unit that would lose memory nodes on which it has memory.

    The host decides again when it is bound: memory comes and goes.
    """
    for unit, nodes, moved in _moves(topology, document):
        room = sum(topology["memory"]["room_mib"].get(str(node), 0) for node in expand(nodes))
        has = f"{unit} has {gib(moved * _MIB)} on memory nodes that it would lose, and keeps nodes {nodes}"
        if moved > room:
            yield (
                f"{has}, which have room for {gib(room * _MIB)}: a bind is refused while it runs, because the kernel would kill its "
                "processes. Stop it first, or allow it more nodes with npu_affinity_memory (wide, or none)."
            )
        else:
            yield f"{has}: a bind moves this memory with npu_affinity_move_memory: true, and is refused otherwise while it runs."


def _moves(topology: Topology, document: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield ``(unit, the nodes that it keeps, MiB on those that it would lose)`` by ``expected`` and ``live`` of a desired state."""
    memory: Mapping[str, Any] = topology.get("memory") or {}
    wanted = {entry["unit"]: entry["mems"] for entry in document.get("expected") or ()}
    services = ((document.get("live") or {}).get("slices") or {}).get("services") or ()
    wanted |= {service["name"]: service["settings"].get("AllowedMemoryNodes", "") for service in services}
    for unit, held in (memory.get("units") or {}).items():
        nodes = wanted.get(unit) or ""
        lost = set(expand(held["mems"])) - set(expand(nodes))
        moved = sum(mib for node, mib in held["mib"].items() if int(node) in lost)
        if nodes and moved:
            yield unit, nodes, moved
