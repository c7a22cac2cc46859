# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans drawn as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .cpulist import compress, expand
from .findings import Device, noun
from .memory_nodes import of_gpu

if TYPE_CHECKING:
    from .documents import Difference, Npu, Plan, Topology

HEADINGS = ("name", "PCI", "NUMA")
ROLES = {
    "pool": "pool",
    "irq": "IRQ",
    "main": "main",
    "kv": "KV",
    "acl": "ACL",
    "release": "release",
    "memory_nodes": "memory",
    "slice": "slice",
}
"""The columns of what a plan gives an NPU, by their keys there."""

TITLE_WIDTH = 11
REMARK_WIDTH = 72
"""Narrow enough that Ansible's YAML output does not fold the lines once more."""


def count(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: ``1 host``, ``2 hosts``; ``several`` is the plural where that is not the noun with an s."""
    return "%d %s" % (number, noun if number == 1 else several or noun + "s")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, two blanks apart, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def plan_table(plan: Plan, topology: Topology, summary: str = "") -> list[str]:
    """Return the table of a plan: one line for every NPU, then why, how good, what was repaired and what to look at.

    ``summary`` is a further sentence, such as that of a desired state about how the workloads are bound.
    """
    return rows(plan, topology) + [line for words in sentences(plan, topology, summary) for line in wrapped(*words)]


def rows(plan: Plan, topology: Topology, difference: Difference | None = None) -> list[str]:
    """Return the lines with the NPUs, and those with their users."""
    facts: dict[Any, Any] = {(npu["pci"], npu["id"]): npu for npu in topology["npus"]}
    tools, of = _keys_of_tools(topology["npus"]), noun(plan["npus"])
    now = _pools_in_force(difference)
    shown = roles_shown(plan, difference)
    cells: list[tuple[str, ...]] = []
    for entry in plan["npus"]:
        npu = facts.get((entry["pci"], entry["id"]), {})
        title = Device.of(entry).title if of == "accelerator" else str(entry["id"])
        of_tools = [_cell(npu, key) for key in tools.values()]
        values = {"memory_nodes": entry.get("mems"), **entry}
        first = (title, str(npu.get("name") or "?"), *of_tools, str(entry["pci"] or "?"), _cell(npu, "numa"))
        cells.append((*first, *now.get(entry.get("slice"), ()), *(str(values.get(role) or "-") for role in shown)))
    for row in difference["npus"] if now and difference else ():
        if row["then"] is None:
            first = (row["npu"].split()[1], "?", *("?" for _key in tools), row["pci"], "?")
            cells.append((*first, str(row["now"]), *(row["slice"] if role == "slice" else "-" for role in shown)))
    headings = (of, HEADINGS[0], *tools, *HEADINGS[1:], *(["now"] if now else []), *(ROLES[role] for role in shown))
    if topology["npus"] and all(npu.get("name", "?") is None for npu in topology["npus"]):  # a host by itself does not query their names
        headings, cells = headings[:1] + headings[2:], [row[:1] + row[2:] for row in cells]
    return [*(columns([headings, *cells]) if cells else ["no accelerator"]), *_users(difference, of)]


def _keys_of_tools(npus: Iterable[Npu]) -> dict[str, str]:
    """Return the headings and keys of the columns with NPU ID, chip and device file; they are there where logic ids do not tell them."""
    entries = [npu for npu in npus if npu.get("kind") == "npu" and "device" in npu]
    ids = any((npu["card"], npu["chip"]) != (npu["id"], 0) for npu in entries)
    devices = any(npu["device"]["number"] != npu["id"] for npu in entries)
    return {**({"NPU ID": "card", "chip": "chip"} if ids else {}), **({"device": "device"} if devices else {})}


def _cell(npu: Any, key: str) -> str:
    value = ((npu.get("device") or {}).get("file") or "?").rpartition("/")[2] if key == "device" else npu.get(key)
    return "?" if value is None else str(value)


def roles_shown(plan: Plan, difference: Difference | None = None) -> list[str]:
    """Return the keys of :data:`ROLES` that have a column: KV caches and slices only on hosts that have them."""
    there = {role: any(entry.get(role) for entry in plan["npus"]) for role in ("kv", "slice")}
    there["slice"] &= not difference or difference["slices"]
    return [role for role in ROLES if there.get(role, True)]


def _pools_in_force(difference: Difference | None) -> dict[str | None, tuple[str]]:
    """Return the pools in force by slice; none where there is no plan in force, or the same."""
    if not difference or not difference["in_force"] or all(row["now"] == row["then"] for row in difference["npus"]):
        return {}
    return {row["slice"]: (row["now"] or "-",) for row in difference["npus"] if row["then"] is not None}


def _users(difference: Difference | None, of: str) -> list[str]:
    if not difference or not difference["users"]:
        return []
    is_moved = difference["in_force"] and any(row["now"] not in (None, row["cpus"]) for row in difference["users"])
    headings = ("used by", of, *(["now"] if is_moved else []), "CPUs", "memory", "slice")
    cells = [
        (row["user"], row["npus"], *([row["now"] or "-"] if is_moved else []), row["cpus"] or "-", row["mems"] or "-", row["slice"] or "-")
        for row in difference["users"]
    ]
    return columns([headings, *cells])


def sentences(
    plan: Plan,
    topology: Topology,
    summary: str = "",
    remarks: Iterable[str] = (),
    difference: Difference | None = None,
    outside: Iterable[str] = (),
) -> list[tuple[str, str]]:
    """Return the sentences below the table, each with its title, without the moves that the table shows.

    ``remarks`` and ``difference`` are those of a desired state: services and workloads, and the plan in force next to this one; so are the
    lines ``outside``, on what runs elsewhere than on the CPUs of its NPUs.
    """
    rows = [row for row in difference["npus"] if None not in (row["now"], row["then"]) and row["now"] != row["then"]] if difference else []
    shown = {row["sentence"] for row in rows if ".slice" not in str(row["sentence"])}
    titled = [*_remarks(plan, topology), *([("bound", summary)] if summary else []), *_in_force(difference, noun(plan["npus"]))]
    titled += [("work", line) for line in outside]
    return titled + [("remark", sentence) for sentence in remarks if sentence not in shown]


def _in_force(difference: Difference | None, of: str) -> Iterator[tuple[str, str]]:
    if difference and difference["in_force"] and not any(row["sentence"] for row in difference["npus"]):
        changes = difference.get("changes")
        unknown = "; what else it changes is not known" if changes is None else ""
        effect = f"moves no {of}{unknown}" if changes or unknown else "changes nothing"
        yield "in force", f"the same CPUs as now: a bind {effect}."
    if difference and difference["restart"]:
        yield "restart", f"a bind restarts no service; these follow when you restart them: {', '.join(difference['restart'])}"


def wrapped(title: str, sentence: str, width: int = REMARK_WIDTH) -> list[str]:
    return textwrap.wrap(
        sentence,
        width=width,
        initial_indent=title.ljust(TITLE_WIDTH),
        subsequent_indent=" " * TITLE_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _memory(plan: Plan, topology: Topology) -> str:
    """Return which memory nodes NPUs may use, and how much memory these have: ``nodes 6-7 (256 GiB) for NPU 0-1``; '' for no NPU.

    The memory of GPUs is named, not counted.
    """
    of_gpus = of_gpu(topology)
    sizes = {node["id"]: node.get("memory_mib") for node in topology.get("numa") or ()}
    users: dict[str, dict[str, list[int]]] = {}
    for entry in plan["npus"]:
        nodes = entry.get("memory_nodes", entry.get("mems")) or ""
        users.setdefault(nodes, {}).setdefault("GPU" if entry.get("kind") == "gpu" else "NPU", []).append(entry["id"])
    parts = []
    for nodes, kinds in users.items():
        known_sizes = [sizes.get(node) for node in expand(nodes) if node not in of_gpus]
        mib = [size for size in known_sizes if size is not None]
        gpu_nodes = compress(node for node in expand(nodes) if node in of_gpus)
        amounts = ["%.0f GiB" % (sum(mib) / 1024.0)] * any(mib) if len(mib) == len(known_sizes) else ["size not known"]
        amounts += ["memory of the GPU on %s" % gpu_nodes] * bool(gpu_nodes)
        size = " (%s)" % ", ".join(amounts) if amounts else ""
        what = "%s %s%s" % ("node" if nodes.isdigit() else "nodes", nodes, size) if nodes else "any node"
        parts.append("%s for %s" % (what, " and ".join("%s %s" % (kind, compress(ids)) for kind, ids in kinds.items())))
    return ", ".join(parts)


def _gap(quality: Mapping[str, Any], of: str) -> str:
    """Return how far a plan is from the best possible; plans of earlier versions do not say."""
    gap = quality.get("gap") or {}
    parts = []
    if "remote" in gap:
        farther = "remote CPUs farther away" if gap["remote"] < 1 else "%s more remote" % count(gap["remote"], "CPU")
        parts.append("%s than the best possible" % farther)
    if "smallest" in gap:
        parts.append("a smallest pool of %d is possible" % (quality["smallest"] + gap["smallest"]))
    if "idle_near" in gap:
        parts.append("%s near %ss idle" % (count(gap["idle_near"], "CPU"), of))
    if "evenness" in gap:
        parts.append("pools of one NUMA node %s more uneven than necessary" % count(gap["evenness"], "CPU"))
    if "split_cores" in gap:
        parts.append("%d cores split" % gap["split_cores"])
    return "".join(", " + part for part in parts)


def _remarks(plan: Plan, topology: Topology) -> Iterator[tuple[str, str]]:
    quality = plan["quality"]
    yield "strategy", f"{plan['strategy']}, {plan['requested']} was requested. {plan['reason']}"
    follows = " at least" if plan.get("follow") else ""
    housekeeping = f", housekeeping {plan['housekeeping']}{follows}" if plan["housekeeping"] else ""
    yield "CPUs", f"{plan['cpus'] or 'none'} divided{housekeeping}, {'idle ' + quality['idle'] if quality['idle'] else 'no CPU idle'}"
    if plan["npus"]:
        of = noun(plan["npus"])
        near = "share of local CPUs not known"
        if quality["local"] is not None:
            near = f"{quality['local'] * 100:g}% of the CPUs local to their {of}, {quality['own_node'] * 100:g}% on its own NUMA node"
        cores = "whole" if quality["whole_cores"] else f"SPLIT between {of}s"
        sizes = f"pools of {quality['smallest']} to {quality['smallest'] + quality['balance']} CPUs"
        if not quality["balance"]:
            sizes = f"each pool {count(quality['smallest'], 'CPU')}"
        yield "quality", f"pools {'disjoint' if quality['disjoint'] else 'OVERLAP'}, cores {cores}, {near}, {sizes}{_gap(quality, of)}"
    yield from (("memory", sentence) for sentence in [_memory(plan, topology)] if sentence)
    for title, sentences in (
        ("repaired", plan["repaired"]),
        ("warning", plan["warnings"]),
        ("violation", plan.get("violations") or ()),
        ("problem", topology.get("problems") or ()),
    ):
        for sentence in sentences:
            yield title, sentence
