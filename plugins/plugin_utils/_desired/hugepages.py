# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hugepages: huge pages on the memory nodes of pools, now and at every boot before anything else starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.memory_nodes import of_gpu
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import is_older
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.hugepages.pages import size_of
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import BY_NODE, GIGANTIC, kept_free, size_text
from ansible_collections.npu.affinity.plugins.module_utils._kernel.memory import gib
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error, remark
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, no_effect, of_values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

_NAME = "npu_affinity_hugepages"
_SIZE = "2M"
_DRIVER, _REGISTERED = "25.5", 32 << 30
"""Mooncake issue 3791: an A2 registers about this much memory in pages of 2 MiB with an older driver."""

_ORDER = (
    "DefaultDependencies=no\nAfter=local-fs.target systemd-sysctl.service systemd-tmpfiles-setup.service\n"
    "Before=basic.target npu.slice gpu.slice shutdown.target\nConflicts=shutdown.target\n"
)
"""It runs before basic.target, and so before services, container engines and the kubelet."""

Counts = dict[int, int]
"""Pages by node."""


def is_on(settings: OfRole) -> bool:
    """Whether huge pages are wanted; the variable is the switch, too."""
    return bool(settings["hugepages"].get("per_npu") or settings["hugepages"].get("node"))


def idle(settings: OfRole) -> tuple[Sentence, ...]:
    asked = settings["hugepages"]
    sentence = Sentence("NPU_NO_EFFECT", f"{_NAME} has no effect: it has no pages. Add per_npu or node, or remove it.")
    return (sentence,) if asked and asked.get("per_npu") is None and not asked.get("node") else ()


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """Raises ``ValueError`` for a setting that cannot be understood, and for pages that leave a node too little other memory."""
    asked = settings["hugepages"]
    try:
        size = size_of(str(asked.get("size") or _SIZE))
        counts = _counts(topology, plan, asked)
    except ValueError as error:
        raise ValueError(f"{_NAME}: {error}.") from error
    offered, notes = _offered(topology, size, counts)
    if refused := _crowded(topology, size, offered):
        raise coded_error("NPU_MEMORY_SHORT", f"{_NAME}, {refused}.")
    live = {"size": size, "nodes": {str(node): count for node, count in sorted(offered.items())}}
    filled = _filled(topology, size, offered)
    too_many = _crowded(topology, size, filled)
    notes += [*_remaining(topology, size, offered if too_many else filled), *_driver(topology, size, offered)]
    if size >= GIGANTIC or not offered:
        now = (topology.get("hugepages") or {}).get(str(size)) or {}
        there = all(now.get(str(node), 0) >= count for node, count in offered.items())
        notes += [] if there else _command_line(size, offered, filled, too_many)
        return Feature(live=live, needs_plan=bool(plan["npus"]), notes=tuple(notes))
    does, more = "Reserve huge pages on the memory nodes of pools", tuple(notes)
    return of_values(FEATURE, live, settings["python"], does, _ORDER, "basic.target", needs_plan=bool(plan["npus"]), notes=more)


def _counts(topology: Topology, plan: Plan, asked: Mapping[str, Any]) -> Counts:
    """Return the requested pages by node. Those of an NPU, also a lost one with a pool, are spread over the nodes nearest to it."""
    if asked.get("per_npu") and asked.get("node"):
        raise ValueError("per_npu and node exclude each other; leave one of them out")
    of_gpus = of_gpu(topology)
    counts: Counts = {}
    if not asked.get("per_npu"):
        counts = {_number(node, "node"): _number(count, f"pages of node {node}") for node, count in asked["node"].items()}
        if taken := sorted(counts.keys() & of_gpus.keys()):
            raise ValueError(f"the memory of node {compress(taken)} is that of the GPU at {of_gpus[taken[0]]}; leave it to the GPU")
        return counts
    for entry in [*plan["npus"], *(entry for entry in plan.get("lost") or () if entry["pool"])]:
        nodes = [node for node in expand(entry.get("mems") or memory_nodes(entry)) if node not in of_gpus]
        if not nodes:
            raise ValueError(
                f"no memory node of {str(entry.get('kind') or 'npu').upper()} {entry['id']} is known; set node in place of per_npu"
            )
        share, rest = divmod(_number(asked["per_npu"], "per_npu"), len(nodes))
        for place, node in enumerate(nodes):
            counts[node] = counts.get(node, 0) + share + (place < rest)
    return counts


def _number(value: Any, title: str) -> int:
    if not str(value).isdecimal():
        raise ValueError(f"{title}: expected a whole number from 0 on; got {value!r}")
    return int(value)


def _offered(topology: Topology, size: int, counts: Counts) -> tuple[Counts, list[str]]:
    """Return the counts that have an effect on this host, and a sentence on the others."""
    offered = topology.get("hugepages")
    if offered is None:
        return counts, []
    nodes = {int(node) for node in offered.get(str(size), ())}
    if not nodes:
        sizes = " and ".join(size_text(int(other)) for other in sorted(offered, key=int))
        has = f"its kernel offers {sizes}" if sizes else "its kernel offers none"
        return {}, [Sentence("NPU_NO_EFFECT", f"{no_effect(_NAME, 'this host')}, which has no huge pages of {size_text(size)}; {has}.")]
    unknown = sorted(counts.keys() - nodes)
    where = f"node{'s' if len(unknown) > 1 else ''} {compress(unknown)}"
    sentence = Sentence("NPU_NO_EFFECT", f"{no_effect(_NAME, where)}: this host has huge pages on nodes {compress(nodes)}.")
    return {node: count for node, count in counts.items() if node in nodes}, [sentence] if unknown else []


def _memory(topology: Topology, size: int) -> dict[int, int]:
    """Return the bytes that pages of other sizes leave of each node of known memory, once those of former binds are given back."""
    memory = {node["id"]: node["memory_mib"] << 20 for node in topology.get("numa") or () if node.get("memory_mib")}
    before = topology.get("hugepages_before") or {}
    for other, of_nodes in (topology.get("hugepages") or {}).items():
        for node, pages in {**of_nodes, **before.get(other, {})}.items():
            if int(other) != size and int(node) in memory:
                memory[int(node)] -= (pages * int(other)) << 10
    return memory


def _filled(topology: Topology, size: int, counts: Counts) -> Counts:
    """Return the pages of all nodes once these are reserved, of a gigantic size by the kernel command line."""
    version = re.match(r"(\d+)\.(\d+)", str((topology.get("machine") or {}).get("kernel") or ""))
    if not counts or size < GIGANTIC or version and tuple(map(int, version.groups())) >= BY_NODE:
        return counts
    nodes = sorted(map(int, (topology.get("hugepages") or {}).get(str(size), counts)))
    return dict.fromkeys(nodes, max(counts.values()))


def _crowded(topology: Topology, size: int, counts: Counts) -> str:
    """Return a sentence on every node that would keep too little memory for everything else, or ''."""
    sizes = {node["id"]: (node.get("memory_mib") or 0) << 20 for node in topology.get("numa") or ()}
    refused: dict[str, list[int]] = {}
    for node, there in _memory(topology, size).items():
        floor = kept_free(sizes[node])
        taken, most = counts.get(node, 0) * size << 10, max(0, there - floor) // (size << 10)
        if counts.get(node) and there - taken < floor:
            why = (
                f"{counts[node]:,} huge pages of {size_text(size)} take {gib(taken)} of the {gib(there)}, and {gib(floor)} must remain for "
                f"other memory (10 % of the node, at most 8 GiB); at most {most:,} pages fit"
            )
            refused.setdefault(why, []).append(node)
    return "; ".join(f"{_on(nodes)}: {why}" for why, nodes in refused.items())


@remark("NPU_BIND_EFFECT")
def _remaining(topology: Topology, size: int, counts: Counts) -> Iterator[str]:
    """Yield what the pages take and what is left, one part for all nodes of which the same is to be said."""
    memory = _memory(topology, size)
    groups: dict[str, list[int]] = {}
    for node, count in sorted(counts.items()):
        taken = count * size << 10
        remaining = f"{gib(memory[node] - taken)} remain for other memory" if node in memory else "what remains is not known"
        groups.setdefault(f"{count:,} ({gib(taken)}, {remaining})", []).append(node)
    if parts := [f"{amount} on {_on(nodes)}" for amount, nodes in groups.items()]:
        yield f"Huge pages of {size_text(size)}: {'; '.join(parts)}."


def _on(nodes: list[int]) -> str:
    return f"{'each of nodes' if len(nodes) > 1 else 'node'} {compress(nodes)}"


@remark("NPU_DRIVER_TOO_OLD")
def _driver(topology: Topology, size: int, counts: Counts) -> Iterator[str]:
    version = (topology.get("driver") or {}).get("version")
    total = sum(counts.values()) * size << 10
    is_a2 = any(npu.get("family") == "a2" for npu in topology["npus"])
    if is_a2 and size < GIGANTIC and total > _REGISTERED and (not version or is_older(version, _DRIVER)):
        driver = f"The Ascend driver is {version}." if version else "The version of the Ascend driver is not known; run npu-smi info."
        yield (
            f"{driver} Mooncake cannot register more than about {gib(_REGISTERED)} of {gib(total)} in huge pages on "
            f"an A2 before {_DRIVER}; update the driver if you use Mooncake."
        )


@remark("NPU_KERNEL_ADVICE")
def _command_line(size: int, counts: Counts, filled: Counts, too_many: str) -> Iterator[str]:
    """Yield what the kernel command line should have for pages that only it reserves reliably."""
    spread = filled is not counts
    number = sum(filled.values()) if spread else ",".join(f"{node}:{count}" for node, count in sorted(counts.items()))
    words = f"hugepagesz={size >> 20}G hugepages={number}"
    only = f"Only the kernel command line reserves huge pages of {size_text(size)} reliably, and a bind does not write it."
    if too_many:
        yield (
            f"{only} This kernel spreads them evenly over all nodes, so {words} would take too much memory of {too_many}. Reduce the "
            f"number, or boot Linux {'.'.join(map(str, BY_NODE))} or newer, which takes the pages by node."
        )
        return
    evenly = "; this kernel spreads them evenly over all nodes" if spread else ""
    yield f"{only} Add {words} there and reboot{evenly}. Verify compares the result."
