# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet: the CPUs that its static CPU manager hands out, the hints that its topology manager merges, and its state file."""

from __future__ import annotations

import json

from adaptors.checks import require_known
from adaptors.placement import cores_of

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import state_file
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus as kubelet
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import topology_manager

TOPOLOGY = "cpus cores numa_nodes sockets last_level_caches upstream_name node_cpus socket_cpus cache_cpus core_of_cpu"
FREE_UNITS = {"free_sockets": "sockets", "free_numa_nodes": "nodes", "free_cores": "cores", "free_cpus": "cpus"}


def units(table: dict) -> kubelet.Units:
    require_known(table, TOPOLOGY, "topology")
    nodes, sockets, caches = (
        {int(number): mask(cpus) for number, cpus in table[key].items()} for key in ("node_cpus", "socket_cpus", "cache_cpus")
    )
    return kubelet.Units(nodes, sockets, caches, cores_of(table["core_of_cpu"]))


def allocation(function: str, topology: dict, sorting: str = "packed", **given: object) -> dict:
    assert sorting in ("packed", "spread")
    return {"cpus": text_of(RUN[function](units(topology), spread=sorting == "spread", **given))}


def refused(expected: dict, message: str) -> bool:
    return (message, None) == (expected["error"], expected["cpus"])


def packed(machine: kubelet.Units, available: str, n: int, spread: bool, prefer_align_by_uncore_cache: bool = False) -> int:
    return kubelet.packed(machine, mask(available), n, by_cache=prefer_align_by_uncore_cache, spread=spread)


def distributed(machine: kubelet.Units, available: str, n: int, spread: bool, cpu_group_size: int = 1) -> int:
    return kubelet.distributed(machine, mask(available), n, cpu_group_size, spread=spread)


def reserved(machine: kubelet.Units, reserved_cpu_quantity: str, n: int, spread: bool) -> int:
    chosen = kubelet.reserve(machine, reserved_cpu_quantity)
    assert chosen.bit_count() == n
    return chosen


def full_pcpus_only(machine: kubelet.Units, available: str, n: int, spread: bool) -> int:
    return kubelet.allocate(machine, mask(available), n, kubelet.PolicyOptions(full_pcpus_only=True))


RUN = {
    "packed": packed,
    "distributed": distributed,
    "reserved_for_static_policy": reserved,
    "full_pcpus_only": full_pcpus_only,
}


def free_units(given: dict, expected: dict) -> None:
    choice = kubelet.Choice(units(given["topology"]), mask(given["available"]), 0)
    level = FREE_UNITS[given["function"]]
    found = list(choice.threads(kubelet.CORES)) if level == "cpus" else choice.whole(level)
    assert found == expected["units"] if expected["order_matters"] else sorted(found) == sorted(expected["units"])


def merge(given: dict, expected: dict) -> None:
    bits = {node: 1 << position for position, node in enumerate(given["numa_nodes"])}
    resources = [
        None if hints is None else [hint(bits, **one) for one in hints]
        for provider in given["providers"]
        for hints in (provider or {"any": None}).values()
    ]
    ranking = topology_manager.Ranking(given["distances"] if given["prefer_closest_numa"] else None)
    for policy in given["policies"]:
        merged = topology_manager.merge(resources, sum(bits.values()), policy, ranking)
        nodes = None if merged.nodes is None else [node for node, bit in bits.items() if merged.nodes & bit]
        assert topology_manager.admits(policy, merged) == expected["admit"][policy], policy
        if policy == "none" or (policy == topology_manager.SINGLE and len(given["policies"]) > 1 and not expected["admit"][policy]):
            continue  # the expected set is that of the other policies
        assert (nodes, merged.preferred) == (expected["nodes"], expected["preferred"]), policy


def hint(bits: dict, nodes: list | None, preferred: bool) -> topology_manager.Hint:
    return topology_manager.Hint(None if nodes is None else sum(bits[node] for node in nodes), preferred)


def state(given: dict, expected: dict) -> None:
    try:
        found = state_file.parse(given["text"] if "text" in given else json.dumps(given["file"]))
    except ValueError:
        found = None
    assert expected["valid"] in (None, found is not None and not found.problems), found
    if "checksum_follows_rule" in expected:
        assert found.checksum == expected["checksum_follows_rule"]


def checksums(format: str, file: dict) -> dict:
    hashed = state_file.dump(file["policyName"], file["defaultCpuSet"], file.get("entries"), {"v1": 1, "v2": 2}[format])
    return {"text_hashed": hashed, "checksum": state_file.fnv1a(hashed)}


def data_checksum(data: str) -> dict:
    return {"dataChecksum": state_file.data_checksum(data)}
