# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes, sockets, caches and cores of a machine as the kubelet's CPU manager sorts them.

Where the kernel names no sockets, every NUMA node counts as one; CPUs of no known cache share one with their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import NO_NODE, cpus_of, mask, union
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import Units

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology


def units_of(topology: Topology) -> Units:
    """Return the units of a topology; those of the last models of machines are kept. ``ValueError``: they do not fit together."""
    cpus = topology["cpus"]
    nodes = tuple((int(node["id"]), str(node.get("cpus") or "")) for node in topology.get("numa") or ())
    sets = (tuple(texts or ()) for texts in (cpus.get("sockets"), cpus.get("caches"), cpus.get("siblings")))
    return _of_texts(cpus["online"], nodes, *sets)


@lru_cache(maxsize=64)
def _of_texts(
    online: str, nodes: tuple[tuple[int, str], ...], sockets: tuple[str, ...], caches: tuple[str, ...], siblings: tuple[str, ...]
) -> Units:
    return units(
        mask(online, "cpus.online of the topology"),
        {number: mask(cpus, f"cpus of NUMA node {number}") for number, cpus in nodes},
        *([mask(text, "cpus of the topology") for text in texts] for texts in (sockets, caches, siblings)),
    )


def units(online: int, nodes: Mapping[int, int], sockets: Iterable[int], caches: Iterable[int], cores: Iterable[int]) -> Units:
    """Return the units of sets of CPUs; only online CPUs count. Sockets and caches are numbered by their lowest CPU."""
    known = {number: cpus & online for number, cpus in nodes.items()}
    if rest := online & ~union(known.values()):
        known[NO_NODE] = rest
    packages = {number: cpus & online for number, cpus in enumerate(sorted(sockets, key=_lowest))}
    if union(packages.values()) != online:
        packages = dict(known)
    whole = [cpus & online for cpus in caches if cpus & online]
    uncovered = online & ~union(whole)
    whole += [cpus & uncovered for cpus in known.values() if cpus & uncovered]
    threads = {_lowest(core & online): core & online for core in cores if core & online}
    threads.update((cpu, 1 << cpu) for cpu in cpus_of(online & ~union(threads.values())))
    return Units(known, packages, dict(enumerate(sorted(whole, key=_lowest))), threads)


def _lowest(cpus: int) -> int:
    return (cpus & -cpus).bit_length() - 1
