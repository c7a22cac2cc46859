# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads: several NPUs that serve one model, in one slice with the union of their pools.

The rule is that of the even cpuset per card (Hao Liang's blog, "Customize Kubernetes cpuset strategy in GPU container task"): a task gets
the union of its cards' shares and the memory nodes that these touch; each of its processes keeps the share of its own card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, union
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import NAME, is_lost, kind_and_number, members
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import slices_of, title, unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import flag
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import Service, Workload

VARIABLE = "npu_affinity_workloads"


def refusals(plan: Plan, wanted: Sequence[Workload], services: Sequence[Service] = ()) -> list[Sentence]:
    """Return one sentence for every workload that the plan cannot serve, or that shares CPUs with another or a service unasked."""
    unknown = [unknown_npus(VARIABLE, str(workload.get("name", "")), workload.get("npus") or (), plan) for workload in wanted]
    sentences = [*_wrong(plan, wanted), *filter(None, unknown)]
    return sentences or _overlaps(plan, wanted, services)


@remark("NPU_SETTING_INVALID")
def _wrong(plan: Plan, wanted: Sequence[Workload]) -> Iterator[str]:
    names = [str(workload.get("name", "")) for workload in wanted]
    for name, workload in zip(names, wanted, strict=True):
        npus = workload.get("npus") or ()
        if not NAME.fullmatch(name) or name.isdigit():
            yield f"{VARIABLE}: '{name}' is not a name; use letters, digits, '_', '.' and '-', not a number alone."
        if not npus:
            yield f"{VARIABLE}: {name} names no NPU or GPU."
        try:
            flag("share", workload.get("share", False))
        except ValueError as error:
            yield f"{VARIABLE}: {name}: {error}."
        if len({kind_and_number(unit)[0] for unit in slices_of(plan, npus)}) > 1:
            yield f"{VARIABLE}: {name} mixes NPUs and GPUs; make one workload of each."
    for slice_name in sorted(set(map(_inner, names))):
        alike = [name for name in names if _inner(name) == slice_name]
        if len(set(alike)) > 1:
            both = " and ".join(dict.fromkeys(alike))
            yield f"{VARIABLE}: {both} would have one slice, because '-' and '_' count as the same there; rename one of them."
        elif len(alike) > 1:
            yield f"{VARIABLE}: {alike[0]} is named more than once."


@remark("NPU_CLAIMED_TWICE")
def _overlaps(plan: Plan, wanted: Sequence[Workload], services: Sequence[Service]) -> Iterator[str]:
    """Yield which workloads have NPUs of another workload or service, where not all workloads concerned have ``share``."""
    users = [
        (f"workload {workload['name']}", flag("share", workload.get("share", False)), slices_of(plan, workload.get("npus") or ()))
        for workload in wanted
    ]
    others = [*users, *((str(service.get("unit")), True, slices_of(plan, service.get("npus") or ())) for service in services)]
    for place, (user, may_share, slices) in enumerate(users):
        for other, other_may_share, taken in others[place + 1 :]:
            both = sorted(slices & taken, key=kind_and_number)
            if both and not (may_share and other_may_share):
                npus = ", ".join(map(title, ({"slice": name} for name in both)))
                yield (
                    f"{VARIABLE}: {user} and {other} both have {npus}, and would run on the same CPUs. Give each NPU to one of them; "
                    "or let workloads share on purpose with share: true on each."
                )


def _inner(name: str) -> str:
    """Return the name as the part of a slice's name, where '-' stands between a slice and the one around it."""
    return name.replace("-", "_")


def workloads(plan: Plan, wanted: Sequence[Workload], topology: Topology) -> list[dict[str, Any]]:
    """Return the workloads with the union of the pools of their NPUs, and with an entry of the plan for each process. CPUs of lost NPUs,
    which have no process, stay with them. Raises ``ValueError`` when the plan cannot serve one of them."""
    if reasons := refusals(plan, wanted):
        raise ValueError(" ".join(reasons))
    result = []
    for workload in wanted:
        entries = members(plan, workload["npus"])[0]
        there = [entry for entry in entries if not is_lost(plan, entry)]
        pool = set(expand(union(entry["pool"] for entry in entries)))
        per_node = {str(node["id"]): len(pool & set(expand(node["cpus"]))) for node in topology["numa"]}
        kind = kind_and_number(entries[0]["slice"])[0]
        result.append(
            {
                "name": workload["name"],
                "slice": f"{kind}-{_inner(str(workload['name']))}.slice",
                "npus": [entry["id"] for entry in there],
                "units": list(workload.get("units") or []),
                "pool": compress(pool),
                "mems": union(entry["mems"] for entry in entries),
                "memory_nodes": union(map(memory_nodes, entries)),
                "cpus_per_node": {node: count for node, count in per_node.items() if count},
                "processes": [dict(entry) for entry in there],
                **({"engine": workload["engine"]} if workload.get("engine") else {}),
            }
        )
    return result
