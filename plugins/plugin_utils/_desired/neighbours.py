# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network and storage interrupts that may run on CPUs of a plan's pools. They are only reported, and stay where they are."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, union

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

_SHOWN = 4


@remark("NPU_INTERRUPTS_IN_POOL")
def remarks(topology: Topology, plan: Plan, placed: Container[str] = ()) -> list[str]:
    """Return a sentence for each device with interrupts on pools, those with most of them first; what is not shown is counted.

    Functions that the plan itself places (``placed``) are left out.
    """
    pools = {(entry.get("kind") or "npu", entry["id"]): mask(entry["pool"]) for entry in plan["npus"] if entry["pool"]}
    everything = union(pools.values())
    found = [(_on(device, everything), device) for device in topology.get("others") or () if device["pci"].lower() not in placed]
    found = sorted((row for row in found if row[0]), key=lambda row: -row[0])
    sentences = [
        f"{_title(device)}: {count} of {device['irqs']} interrupts may run on pool CPUs of {_owners(pools, device)}."
        for count, device in found[:_SHOWN]
    ]
    if rest := found[_SHOWN:]:
        sentences.append(f"{len(rest)} more devices have {sum(count for count, _device in rest)} interrupts that may run on pool CPUs.")
    return sentences


def _on(device: Mapping[str, Any], cpus: int) -> int:
    """Return how many interrupts of a device may run on some of the CPUs."""
    shared: int = sum(count for cpulist, count in device["shared"].items() if mask(cpulist) & cpus)
    return shared + sum((mask(layer) & cpus).bit_count() for layer in device["single"])


def _title(device: Mapping[str, Any]) -> str:
    node = None if device["numa"] is None else f"node {device['numa']}"
    about = (device["driver"], device["pci"] if device["pci"] != device["name"] else None, node)
    known = ", ".join(shown(part) for part in about if part)
    return shown(device["name"]) + (f" ({known})" if known else "")


def _owners(pools: Mapping[tuple[str, int], int], device: Mapping[str, Any]) -> str:
    """Return the NPUs whose pools the interrupts may run on: ``NPU 0-3``."""
    ids: dict[str, list[int]] = {}
    for (kind, number), pool in pools.items():
        if _on(device, pool):
            ids.setdefault(kind, []).append(number)
    return " and ".join(f"{kind.upper()} {compress(numbers)}" for kind, numbers in ids.items())
