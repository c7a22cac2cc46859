# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind would do to the memory of units that run: narrowing their memory nodes moves it, and kills where it does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import gib

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

_MIB = 1 << 20


def remarks(topology: Topology, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every running unit that would lose memory nodes on which it has memory.

    ``document``: ``expected`` and ``live`` of a desired state. The host decides again when it is bound: memory comes and goes.
    """
    memory: Mapping[str, Any] = topology.get("memory") or {}
    wanted = {entry["unit"]: entry["mems"] for entry in document.get("expected") or ()}
    services = ((document.get("live") or {}).get("slices") or {}).get("services") or ()
    wanted |= {service["name"]: service["settings"].get("AllowedMemoryNodes", "") for service in services}
    for unit, held in (memory.get("units") or {}).items():
        nodes = set(expand(wanted.get(unit) or ""))
        lost = set(expand(held["mems"])) - nodes
        moved = sum(mib for node, mib in held["mib"].items() if int(node) in lost)
        if not nodes or not moved:
            continue
        room = sum(memory["room_mib"].get(str(node), 0) for node in nodes)
        has = f"{unit} has {gib(moved * _MIB)} on memory nodes that it would lose, and keeps nodes {wanted[unit]}"
        if moved > room:
            yield (
                f"{has}, which have room for {gib(room * _MIB)}: a bind is refused while it runs, because the kernel would kill its "
                "processes. Stop it first, or allow it more nodes with npu_affinity_memory (wide, or none)."
            )
        else:
            yield f"{has}: a bind moves this memory with npu_affinity_move_memory: true, and is refused otherwise while it runs."
