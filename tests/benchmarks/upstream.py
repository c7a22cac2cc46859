# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The division that a vLLM-Ascend worker computes, without its commands and logs, and machines to compare its time with that of a plan.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, ``CpuAlloc.build_cpu_pools`` and ``allocate``. CPU sets are
lists, and membership is looked up in lists, as there: that is what its time depends on.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand

INPUTS = 196
"""So many machines are made where there are no case files."""
LEAST = 5
SLICED = "a3"


class Parsed(NamedTuple):
    """What a worker knows of a host after it has read the output of its commands."""

    family: str
    allowed: list[int]
    nodes: dict[int, list[int]]
    affinity: dict[int, list[int]]


def parsed(topology: dict[str, Any], cpus: str) -> Parsed:
    """Return the input of the division. ``cpus`` is what the worker may use."""
    return Parsed(
        topology["npus"][0]["family"],
        expand(cpus),
        {int(node["id"]): expand(node["cpus"]) for node in topology["numa"] if node["cpus"]},
        {int(npu["id"]): expand(npu["affinity"]) for npu in topology["npus"] if npu["affinity"]},
    )


def divided(given: Parsed, npus: list[int]) -> dict[int, list[int]]:
    """Return the pools of all NPUs."""
    node_of = {cpu: node for node, cpus in given.nodes.items() for cpu in cpus}
    if given.family == SLICED or not given.affinity:
        found = _sliced(given, npus)
    else:
        nodes = dict(given.nodes)
        found = _shared({npu: _with_next(given.allowed, nodes, node_of, given.affinity.get(npu, [])) for npu in npus})
    for npu, cpus in found.items():
        if len(cpus) < LEAST:
            raise ValueError(f"NPU {npu} has {len(cpus)} CPUs, at least {LEAST} are needed")
    return found


def roles(pools: dict[int, list[int]]) -> dict[int, tuple[list[int], int, int]]:
    """Return the CPUs of the worker, of its ACL thread and of its release thread, by NPU."""
    return {npu: (cpus[2:-2], cpus[-2], cpus[-1]) for npu, cpus in pools.items()}


def _sliced(given: Parsed, npus: list[int]) -> dict[int, list[int]]:
    allowed = sorted(set(given.allowed))
    each, extra = divmod(len(allowed), len(npus))
    if each < LEAST:
        raise ValueError(f"{len(allowed)} CPUs for {len(npus)} NPUs")
    starts = {npu: npu * each + min(npu, extra) for npu in npus}
    return {npu: allowed[start : start + each + (npu < extra)] for npu, start in starts.items()}


def _with_next(allowed: list[int], known: dict[int, list[int]], node_of: dict[int, int], affinity: list[int]) -> list[int]:
    """Return the CPUs of an affinity and of the next node; a node that is looked at counts as known from then on."""
    base = [cpu for cpu in affinity if cpu in allowed]
    if not base:
        raise ValueError("the CPUs of the affinity are not among those allowed")
    nodes = {node_of[cpu] for cpu in base}
    if len(nodes) != 1:
        return base
    following = known.setdefault((nodes.pop() + 1) % len(known), [])
    return sorted({*base, *(cpu for cpu in following if cpu in allowed)})


def _shared(lists: dict[int, list[int]]) -> dict[int, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for npu, cpus in lists.items():
        groups[str(cpus)].append(npu)
    found: dict[int, list[int]] = {}
    for members in groups.values():
        cpus = lists[members[0]]
        if len(members) > 1:
            cpus = sorted(cpus)
        each = len(cpus) // len(members)
        for place, npu in enumerate(members):
            found[npu] = cpus[place * each : (place + 1) * each if npu != members[-1] else None]
    return found


def machines(shared: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield topologies with the CPUs that may be used: of the case files below a folder, each machine once; without a folder, made ones."""
    if shared is None:
        yield from map(_made, range(INPUTS))
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
    read = importlib.import_module("adaptors.plans").host
    seen = set()
    for case in json.loads((Path(shared) / "cases/vllm_ascend_plans.json").read_text())["cases"]:
        topology, cpus = read(case["input"]), str(case["input"]["allowed_cpus"])
        key = json.dumps([topology["numa"], topology["npus"], cpus])
        if key not in seen and topology["npus"][0]["family"] != "a5":
            seen.add(key)
            yield topology, cpus


def _made(seed: int) -> tuple[dict[str, Any], str]:
    """Return a machine of the kinds that the case files have: mostly A2, then A3, few 310P, with all CPUs, some nodes or single CPUs."""
    details = Random(seed)
    family = details.choices(["a2", "a3", "310p"], [6, 4, 1])[0]
    nodes, cores, npus = {
        "a2": details.choice([(8, 24, 8), (4, 48, 8), (4, 64, 8)]),
        "a3": details.choice([(8, 40, 16), (8, 80, 16), (4, 80, 16)]),
        "310p": (4, 32, details.choice([2, 4, 8])),
    }[family]
    topology = host([npu * nodes // npus for npu in range(npus)], nodes=nodes, cores=cores, family=family)
    everything = expand(topology["cpus"]["online"])
    kind = details.choice(["all", "half", "holes"])
    if kind == "half":
        everything = [cpu for cpu in everything if cpu % cores < cores // 2]
    elif kind == "holes":
        everything = sorted(details.sample(everything, len(everything) * 3 // 4))
    return topology, compress(everything)
