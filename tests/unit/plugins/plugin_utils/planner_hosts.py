# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the tests of the planner."""

import json

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REMARKS
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner


def plan(*arguments, **options):
    """Return a plan, all of whose warnings must have a code."""
    made = planner.plan(*arguments, **options)
    assert {warning.code for warning in made["warnings"]} <= REMARKS.keys() | CODES.keys(), made["warnings"]
    return made


def host(cards, nodes=8, cores=24, threads=1, numbering="adjacent", family="a2", affinity="node", nodes_per_socket=2, caches=None, **more):
    """Return a topology of ``nodes`` NUMA nodes with ``cores`` cores each.

    ``cards`` lists the nodes of the NPUs by logic id, None where the kernel knows none; ``nodes`` is a number or a list of ids, and
    ``cores`` a number or a list. Siblings are neighbours by number (adjacent) or as far apart as possible (far). ``affinity`` is
    ``node`` or a list of what npu-smi prints. ``caches`` is a number of cores.
    """
    ids = list(range(nodes)) if isinstance(nodes, int) else list(nodes)
    sizes = [cores] * len(ids) if isinstance(cores, int) else list(cores)
    total = sum(sizes)
    cores_of, first = {}, 0
    for node, size in zip(ids, sizes, strict=True):
        numbers = range(first, first + size)
        first += size
        if numbering == "adjacent":
            cores_of[node] = [range(core * threads, (core + 1) * threads) for core in numbers]
        else:
            cores_of[node] = [range(core, core + threads * total, total) for core in numbers]
    cpulists = {node: compress(cpu for core in members for cpu in core) for node, members in cores_of.items()}
    shared = caches or max(sizes) or 1
    return {
        "schema": 1,
        "machine": {"architecture": "aarch64"},
        "cpus": {
            "online": compress(range(total * threads)),
            "offline": "",
            "isolated": "",
            "siblings": [compress(core) for members in cores_of.values() for core in members if threads > 1],
            "caches": [
                compress(cpu for core in members[start : start + shared] for cpu in core)
                for members in cores_of.values()
                for start in range(0, len(members), shared)
            ],
        },
        "numa": [
            {
                "id": node,
                "cpus": cpulists[node],
                "memory_mib": 65536,
                "distances": {str(other): distance(place, elsewhere, nodes_per_socket) for elsewhere, other in enumerate(ids)},
            }
            for place, node in enumerate(ids)
        ],
        "npus": [
            {
                "kind": "gpu" if family == "gpu" else "npu",
                "id": number,
                "card": number,
                "chip": 0,
                "family": family,
                "pci": f"0000:{number + 1:02x}:00.0",
                "numa": node,
                "affinity": (cpulists.get(node) or None) if affinity == "node" else affinity[number],
            }
            for number, node in enumerate(cards)
        ],
        "kubelet": None,
        "applied": None,
        "problems": [],
        **more,
    }


def a2(busy=(), **more):
    """Return an A2 with NPUs that are busy, by their ids."""
    topology = host([6, 6, 4, 4, 0, 0, 2, 2])
    for npu in topology["npus"]:
        npu["busy"] = npu["id"] in busy
    return {**topology, **more}


def in_pod(title, family, name=None, busy=(), npus=8, **labels):
    """Return a host of a product with two NUMA nodes, with NPUs that are busy by their ids, and its labels."""
    topology = host([0, 0, 0, 0, 1, 1, 1, 1] * (npus // 8), nodes=2, cores=64, family=family)
    topology["machine"]["product"] = title
    topology["npus"] = [{**npu, "name": name, "busy": npu["id"] in busy} for npu in topology["npus"]]
    return {"topology": topology, "labels": labels}


def distance(place, elsewhere, nodes_per_socket):
    return 10 if place == elsewhere else 12 if place // nodes_per_socket == elsewhere // nodes_per_socket else 20


def switch_off(topology, offline):
    """Take CPUs away as the kernel does: from the list of the online ones, from nodes, siblings and caches."""
    topology["cpus"]["offline"] = compress(offline)
    topology["cpus"]["online"] = compress(set(expand(topology["cpus"]["online"])) - offline)
    for node in topology["numa"]:
        node["cpus"] = compress(set(expand(node["cpus"])) - offline)
    for key, least in (("siblings", 2), ("caches", 1)):
        online = [[cpu for cpu in expand(text) if cpu not in offline] for text in topology["cpus"][key]]
        topology["cpus"][key] = [compress(group) for group in online if len(group) >= least]


def bound(topology, plan):
    """Return a host with a plan in force, as JSON gives it back."""
    return {**topology, "applied": json.loads(json.dumps(plan))}


def returns(expected, function, *arguments, **options):
    """Check that a function returns what is expected, or that it refuses with a sentence of which this is a part."""
    try:
        result = function(*arguments, **options)
    except ValueError as refused:
        result = expected if isinstance(expected, str) and expected in str(refused) else refused
    assert result == expected, result


def pools(plan):
    return {entry["id"]: entry["pool"] for entry in plan["npus"]}
