# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's CPUs are for, by a plan and by what the kernel was found to have, and what uses its accelerators.

A view is ``{label, kind, ...}`` with kind "plan" or "kernel": either ``refused``, the sentence why there is no plan, or the plan's
``strategy``, ``reason``, ``cpus``, ``housekeeping``, ``local`` (share, or None), sentences (``repaired``, ``warnings``, ``violations``) and
``npus``: ``{index: {pool, irq, main, kv, acl, release, memory_nodes, slice}}`` of cpulists, without those that are empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, union
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._users.pools import ADOPT, called, local_pages
from ansible_collections.npu.affinity.plugins.module_utils._users.groups import title_of
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, title

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base import documents
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, PlanEntry, Topology, UsedNpu
    from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import Record

    class Drift(documents.Drift):
        """``muted``: until when and why, '' if it is not."""

        muted: str

    class Holder(TypedDict):
        """What has NPUs open. ``next`` says what puts it there, and ``command`` is that as a command, '' where no command alone does it."""

        title: str
        cpus: str
        pool: str
        next: str
        command: str
        cause: str
        outside: bool


Key = tuple[str, str, int]
"""What an NPU is recognised by: kind, PCI function, and which one of that function (a Duo card has two NPUs on one)."""
View = dict[str, Any]
CPULISTS = ("pool", "irq", "main", "kv", "acl", "release", "memory_nodes")
FEW = 16
"""A thread or interrupt that may run on more CPUs than this is marked where it should be, not everywhere it could be."""


def keys_of(entries: Iterable[Mapping[str, Any]]) -> list[Key]:
    """Return the keys of the NPUs of a topology or a plan, in their order; without PCI functions, the logic ids tell them apart."""
    keys: list[Key] = []
    seen: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        kind = str(entry.get("kind") or ("gpu" if str(entry.get("slice")).startswith("gpu-") else "npu"))
        function = str(entry.get("pci") or f"id {entry['id']}")
        keys.append((kind, function, seen[kind, function]))
        seen[kind, function] += 1
    return keys


def with_lost_of(plan: Plan) -> list[PlanEntry]:
    return [*plan.get("npus", ()), *(plan.get("lost") or ())]


def view_of_plan(label: str, plan: Plan, indexes: Mapping[Key, int]) -> View:
    """Return the view of a plan; ``indexes`` are the places of the NPUs in the host's list."""
    entries = with_lost_of(plan)
    return {
        "label": label,
        "kind": "plan",
        "strategy": str(plan.get("strategy") or ""),
        "reason": str(plan.get("reason") or ""),
        "cpus": compress(expand(plan.get("cpus") or "", "cpus of the plan")),
        "housekeeping": compress(expand(plan.get("housekeeping") or "", "housekeeping of the plan")),
        "local": (plan.get("quality") or {}).get("local"),
        "repaired": [str(sentence) for sentence in plan.get("repaired") or ()],
        "warnings": [str(sentence) for sentence in plan.get("warnings") or ()],
        "violations": [str(sentence) for sentence in plan.get("violations") or ()],
        "npus": {
            indexes[key]: {name: str(value) for name in (*CPULISTS, "slice") if (value := entry.get(name))}
            for key, entry in zip(keys_of(entries), entries, strict=True)
        },
    }


def view_of_kernel(label: str, plan: View, drift: Iterable[documents.Drift], npus: Sequence[int | None]) -> View:
    """Return the view of a plan in force with what was found instead where something differs; ``npus`` are the indexes for the drift."""
    sets = {index: dict(entry) for index, entry in plan["npus"].items()}
    moved: dict[int, tuple[set[int], set[int]]] = {}
    for entry, index in zip(drift, npus, strict=True):
        if index is None or index not in sets:
            continue
        if entry["kind"] == "interrupts":
            gone, new = moved.setdefault(index, (set(), set()))
            gone |= set(expand(entry.get("expected_cpus") or ""))
            new |= set(expand(entry.get("found_cpus") or ""))
        elif entry["kind"] == "cpusets" and entry.get("expected_cpus") and entry["unit"] == sets[index].get("slice"):
            sets[index]["pool"] = str(entry.get("found_cpus") or "")
    for index, (gone, new) in moved.items():
        sets[index]["irq"] = compress(set(expand(sets[index].get("irq", ""))) - gone | new)
    return {**plan, "label": label, "kind": "kernel", "npus": sets, "repaired": [], "warnings": [], "violations": []}


def marked(entry: documents.Drift) -> str:
    """Return the cpulist of the CPUs that a drift is about."""
    expected, actual = (set(expand(cpus or "")) for cpus in (entry.get("expected_cpus"), entry.get("found_cpus")))
    if entry["kind"] in ("cpusets", "cpus"):
        return compress(expected ^ actual)
    return compress(expected | actual if len(actual) <= FEW else expected)


def holders_of(record: Record, topology: Topology | None) -> list[Holder]:
    """Return what has NPUs open and its ranks, first what is not placed as planned."""
    keys = ("title", "cpus", "pool", "next", "command", "cause")
    rows = [{key: str(user.get(key) or "") for key in keys} for user in record.get("outside") or ()]
    away = {row["title"]: cast("Holder", {**row, "outside": True}) for row in rows}
    in_force = topology.get("applied") if topology else None
    pools = {Device.of(npu)[:2]: npu["pool"] for npu in (in_force or {}).get("npus") or ()}
    inside = []
    for user in (topology.get("users") if topology else None) or ():
        if not user["processes"]:
            continue
        inside.append(_inside(called(user), union(process["cpus"] for process in user["processes"]), user["npus"], pools))
        for rank in user.get("ranks", ()):
            name, process = f"rank {rank['rank']} of {title_of(user)}", user["processes"][0].copy()
            process["pid"] = rank["pid"]
            title = called({**user, "name": name, "container": None, "npus": rank["npus"], "processes": [process]})
            row = _inside(title, rank["cpus"], rank["npus"], pools)
            if row["pool"] and user["kind"] != "pod" and not set(expand(row["cpus"])) <= set(expand(row["pool"])):
                row |= {"outside": True, "next": ADOPT}
            row = away.pop(title, row)
            inside.append(row | {"title": f"{title}, {local_pages(rank)}"})
    return sorted([*away.values(), *(row for row in inside if row["title"] not in away)], key=lambda row: not row["outside"])


def _inside(title: str, cpus: str, npus: Sequence[UsedNpu], pools: Mapping[tuple[str, int], str]) -> Holder:
    pool = union(pools.get((npu["kind"], npu["id"]), "") for npu in npus)
    return {"title": title, "cpus": cpus, "pool": pool, "next": "", "command": "", "cause": "", "outside": False}


def users_of(record: Record, plan: Plan | None) -> list[dict[str, object]]:
    """Return ``[{kind, name, units, npus, pool, mems}]`` of a record's settings. NPUs that the plan lacks are named as in the settings."""
    users = [("service", str(service.get("unit") or ""), service) for service in record.get("services") or ()]
    users += [("workload", str(workload.get("name") or ""), workload) for workload in record.get("workloads") or ()]
    return [_user(kind, name, user, plan or {"npus": []}) for kind, name, user in users]


def _user(kind: str, name: str, user: Mapping[str, Any], plan: Plan) -> dict[str, object]:
    entries, unknown = members(plan, user.get("npus") or ())
    return {
        "kind": kind,
        "name": name,
        "units": list(map(str, user.get("units") or ())),
        "npus": [*map(title, entries), *(f"{npu} (not in the plan)" for npu in unknown)],
        "pool": union(entry["pool"] for entry in entries),
        "mems": union(map(memory_nodes, entries)),
    }
