# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A topology out of the fields of a case, shared by the adaptors of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand


def topology(
    numa_map: Mapping[str, str],
    npus: Iterable[Mapping[str, Any]],
    online: Iterable[str] = (),
    offline: str = "",
    threads_per_core: int = 1,
    caches: Iterable[str] = (),
    siblings: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the topology of a case. ``online`` are cpulists; siblings without a list are neighbours by number within a node."""
    cpus = sorted({cpu for text in [*numa_map.values(), *online] for cpu in expand(text)} - set(expand(offline)))
    nodes = [{"id": int(node), "cpus": compress(set(expand(text)) & set(cpus)), "memory_mib": 1024} for node, text in numa_map.items()]
    if siblings is None:
        siblings = (
            []
            if threads_per_core == 1
            else [
                compress(members[first : first + threads_per_core])
                for members in (expand(node["cpus"]) for node in nodes)
                for first in range(0, len(members), threads_per_core)
            ]
        )
    return {
        "schema": 1,
        "cpus": {
            "online": compress(cpus),
            "offline": offline,
            "isolated": "",
            "siblings": list(siblings),
            "caches": list(caches) or [node["cpus"] for node in nodes if node["cpus"]],
        },
        "numa": nodes,
        "npus": list(npus),
        "kubelet": None,
        "applied": None,
        "problems": [],
    }


def npu(number: int, affinity: str | None, family: str, numa_map: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return an NPU; with ``numa_map`` on the node that holds its whole affinity, as a kernel would say."""
    cpus = set(expand(affinity or ""))
    nodes = [int(node) for node, members in (numa_map or {}).items() if cpus and cpus <= set(expand(members))]
    return {
        "kind": "npu",
        "id": number,
        "chip": 0,
        "family": family,
        "pci": f"0000:{number:02x}:00.0",
        "numa": nodes[0] if nodes else None,
        "affinity": affinity,
        **more,
    }
