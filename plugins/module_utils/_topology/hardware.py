# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which machine a desired state is: one of another machine, or of this one before a card was exchanged, must not be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from .._base.documents import Topology


def hardware(topology: Topology) -> dict[str, Any]:
    """Return what a plan depends on: the PCI functions of NPUs and GPUs, the CPUs, and the CPUs of each node. Nothing for a state that was
    made without looking at a machine, such as settings of a host alone."""
    if "cpus" not in topology:
        return {}
    return {
        "npus": sorted({npu["pci"] for npu in topology["npus"] if npu.get("pci")}),
        "cpus": topology["cpus"]["online"],
        "nodes": [{"id": node["id"], "cpus": node["cpus"]} for node in topology["numa"]],
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one sentence for everything in which the machine differs from what it was ``then``, both as :func:`hardware` returned them."""
    if not then:
        return []
    sentences = ["the accelerator at %s is missing" % pci for pci in then["npus"] if pci not in now["npus"]]
    sentences += ["the accelerator at %s is new" % pci for pci in now["npus"] if pci not in then["npus"]]
    if then["cpus"] != now["cpus"]:
        sentences.append("the CPUs online were %s and are %s" % (then["cpus"] or "none", now["cpus"] or "none"))
    nodes_then, nodes_now = ({node["id"]: node["cpus"] for node in hardware["nodes"]} for hardware in (then, now))
    for node in sorted(nodes_then.keys() | nodes_now.keys()):
        before, after = nodes_then.get(node), nodes_now.get(node)
        if before != after:
            had = "was not there" if before is None else "had CPUs %s" % (before or "none")
            has = "is missing" if after is None else "has CPUs %s" % (after or "none")
            sentences.append("NUMA node %s %s and %s" % (node, had, has))
    return sentences
