# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind would do to the memory of units that run: narrowing their memory nodes moves it, and kills where it does not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
    units = [entry["unit"] for entry in document.get("expected") or ()]
    entries = {Device.of(npu)[:2]: npu for npu in plan["npus"]}
    for user in topology.get("users") or ():
        held = [entries.get((npu["kind"], npu["id"])) for npu in user["npus"]]
        nodes = {node for npu in held if npu for node in expand(memory_nodes(npu))}
        moved = sum(mib for node, mib in user.get("memory_mib", {}).items() if int(node) not in nodes)
        room, fits = _room(topology, nodes, moved)
        if nodes and None not in held and not fits and not any(in_group(user["group"], unit) for unit in units):
            of = f"memory nodes than {compress(nodes)} of its {noun(user['npus'])}s"
            yield (
                f"{title_of(user)} has {gib(moved * _MIB)} on other {of}, {room}: started again in their slice it "
                f"{'may' if fits is None else 'would'} not fit, and the kernel would kill its processes. Adopt it, which moves no memory "
                "(npu_affinity_adopt), or allow it more nodes with npu_affinity_memory (wide, or none)."
            )


def moved_mib(topology: Topology, document: Mapping[str, Any]) -> int | None:
    """Return how much memory of running units a bind would move, None where that is not known. The memory of a unit counts in the slices
    around it, too."""
    moves = {unit: moved for unit, _nodes, _lost, moved in _moves(topology, document)}
    found = {unit: moved for unit, moved in moves.items() if moved is not None}
    outer = sum(found.pop(unit, 0) for unit in ("npu.slice", "gpu.slice"))
    return None if None in moves.values() else max(outer, sum(found.values()))


def _room(topology: Topology, nodes: Collection[int], moved: int) -> tuple[str, bool | None]:
    """Return what room memory nodes have, as words, and whether so many MiB fit; None where that is not known."""
    room: Mapping[str, int] = (topology.get("memory") or {}).get("room_mib") or {}
    left = sum(room.get(str(node), 0) for node in nodes)
    if moved > left and not all(str(node) in room for node in nodes):
        return "whose room is not known", None
    return f"which have room for {gib(left * _MIB)}", moved <= left


@remark("NPU_MEMORY_ELSEWHERE")
def remarks(topology: Topology, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every running unit that would lose memory nodes on which it has memory.

    The host decides again when it is bound: memory comes and goes.
    """
    moves = "a bind moves this memory with npu_affinity_move_memory: true, and is refused otherwise while it runs."
    for unit, nodes, lost, moved in _moves(topology, document):
        if moved is None:
            yield f"{unit} would lose memory nodes {lost}, and keeps nodes {nodes}; how much memory it has there is not known: {moves}"
            continue
        room, fits = _room(topology, expand(nodes), moved)
        has = f"{unit} has {gib(moved * _MIB)} on memory nodes that it would lose, and keeps nodes {nodes}"
        if fits is False:
            yield (
                f"{has}, {room}: a bind is refused while it runs, because the kernel would kill its processes. Stop it first, or allow it "
                "more nodes with npu_affinity_memory (wide, or none)."
            )
        else:
            yield f"{has}{'' if fits else f', {room}'}: {moves}"


def _moves(topology: Topology, document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, int | None]]:
    """Yield ``(unit, the nodes that it keeps, those that it would lose, MiB there)`` by ``expected`` and ``live`` of a desired state."""
    memory: Mapping[str, Any] = topology.get("memory") or {}
    wanted = {entry["unit"]: entry["mems"] for entry in document.get("expected") or ()}
    services = ((document.get("live") or {}).get("slices") or {}).get("services") or ()
    wanted |= {service["name"]: service["settings"].get("AllowedMemoryNodes", "") for service in services}
    for unit, held in (memory.get("units") or {}).items():
        nodes = wanted.get(unit) or ""
        lost = set(expand(held["mems"])) - set(expand(nodes))
        moved = None if held["mib"] is None else sum(mib for node, mib in held["mib"].items() if int(node) in lost)
        if nodes and lost and moved != 0:
            yield unit, nodes, compress(lost), moved
