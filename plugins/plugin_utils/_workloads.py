# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads: several NPUs that serve one model, in one slice with the union of their pools.

The rule is that of the even cpuset per card (Hao Liang's blog, "Customize Kubernetes cpuset strategy in GPU container task"): a task gets
the union of its cards' shares and the memory nodes that these touch; each of its processes keeps the share of its own card.

This module is private to the collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


def union(values: Iterable[str]) -> str:
    """Return the cpulist of all CPUs (or memory nodes) of several cpulists."""
    return compress({number for value in values for number in expand(value)})


def kind_and_number(slice_name: str) -> tuple[str, int]:
    """Return the kind and the number in the name of an NPU's slice: ``npu-3.slice`` -> ``("npu", 3)``."""
    kind, number = slice_name.removesuffix(".slice").split("-")
    return kind, int(number)


def by_id(plan: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the entries of a plan by logic id. On a host with NPUs and GPUs an id that both have means the NPU."""
    return {entry["id"]: entry for entry in reversed(plan["npus"])}


def unknown_npus(variable: str, name: str, npus: Iterable[int], plan: Mapping[str, Any]) -> str | None:
    """Return a sentence about the NPUs that a service or workload names and the plan does not have, or None."""
    known = by_id(plan)
    missing = [npu for npu in npus if npu not in known]
    if not missing:
        return None
    has = ", ".join(map(str, sorted(known))) or "(none)"
    return f"{variable}: {name} wants NPU {', '.join(map(str, missing))}, but the plan of this host has NPU {has}."


def refusals(plan: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one sentence for every workload that the plan cannot serve."""
    sentences = []
    known = by_id(plan)
    names = [str(workload.get("name", "")) for workload in wanted]
    for name, workload in zip(names, wanted, strict=True):
        npus = workload.get("npus") or []
        if not _NAME.match(name) or name.isdigit():
            sentences.append(f"npu_affinity_workloads: '{name}' is not a name; use letters, digits, '_', '.' and '-', not a number alone.")
        if names.count(name) > 1 and f"{name} is" not in " ".join(sentences):
            sentences.append(f"npu_affinity_workloads: {name} is named more than once.")
        if not npus:
            sentences.append(f"npu_affinity_workloads: {name} names no NPU.")
        if unknown := unknown_npus("npu_affinity_workloads", name, npus, plan):
            sentences.append(unknown)
        elif len({kind_and_number(known[npu]["slice"])[0] for npu in npus}) > 1:
            sentences.append(f"npu_affinity_workloads: {name} mixes NPUs and GPUs; make one workload of each.")
    return sentences


def workloads(plan: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]], topology: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the workloads with their CPUs.

    Each: ``name``, ``slice``, ``npus`` (logic ids), ``units``, ``pool`` (cpulist, the union), ``mems`` (memory nodes),
    ``cpus_per_node`` ({NUMA node: number of CPUs}) and ``processes`` (the plan's entry of every NPU, one process each).
    Raises ``ValueError`` when the plan cannot serve one of them.
    """
    if reasons := refusals(plan, wanted):
        raise ValueError(" ".join(reasons))
    known = by_id(plan)
    result = []
    for workload in wanted:
        members = [known[npu] for npu in sorted(set(workload["npus"]))]
        pool = set(expand(union(entry["pool"] for entry in members)))
        per_node = {str(node["id"]): len(pool & set(expand(node["cpus"]))) for node in topology["numa"]}
        kind = kind_and_number(members[0]["slice"])[0]
        result.append(
            {
                "name": workload["name"],
                "slice": f"{kind}-{str(workload['name']).replace('-', '_')}.slice",
                "npus": [entry["id"] for entry in members],
                "units": list(workload.get("units") or []),
                "pool": compress(pool),
                "mems": union(entry["mems"] for entry in members),
                "cpus_per_node": {node: count for node, count in per_node.items() if count},
                "processes": [dict(entry) for entry in members],
            }
        )
    return result
