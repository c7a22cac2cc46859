# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole cores of a host, for those who count cores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology


def whole_cores(topology: Topology, cpus: Iterable[int]) -> set[int]:
    """Return CPUs with all threads of their cores; without a topology, cores are not known and the CPUs come back as they are."""
    found = set(cpus)
    for core in _threads(topology):
        if found.intersection(core):
            found.update(core)
    return found


def numbered(topology: Topology) -> list[list[int]]:
    """Return the CPUs of each core, in the order in which hwloc and Slurm number cores: by NUMA node, then by lowest thread."""
    siblings = {cpu: core for core in _threads(topology) for cpu in core}
    cores: list[list[int]] = []
    nodes = [(node["id"], node["cpus"]) for node in topology.get("numa") or ()] or [(0, topology["cpus"]["online"])]
    for _id, cpus in sorted(nodes):
        cores += [siblings.get(cpu, [cpu]) for cpu in sorted(expand(cpus)) if siblings.get(cpu, [cpu])[0] == cpu]
    return cores


def _threads(topology: Topology) -> list[list[int]]:
    return [sorted(expand(core)) for core in (topology.get("cpus") or {}).get("siblings") or ()]
