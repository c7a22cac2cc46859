# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips of a host, scores of hosts, shares of a chip and SuperPods by the rules of MindCluster; hosts by those of Volcano; what the kubelet
does with CPUs: its static CPU manager hands them out, its topology manager merges hints, and its state file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.filter.select_npus import select_npus
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import state_file
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus as kubelet
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import topology_manager
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import request, superpods, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

FAMILIES = {"atlas800T_A2_and_Atlas900_A2_basic_unit": "a2"}
TOPOLOGY = "cpus cores numa_nodes sockets last_level_caches upstream_name node_cpus socket_cpus cache_cpus core_of_cpu"
FREE_UNITS = {"free_sockets": "sockets", "free_numa_nodes": "nodes", "free_cores": "cores", "free_cpus": "cpus"}


def pick(family: str, free: list, n: int, multi: bool = False) -> list:
    return select_npus(free, n, FAMILIES.get(family, family), multi)["chips"]


def score(family: str, free: list, n: int, allocatable: int = 0, healthy: int = 0, multi: bool = False) -> int:
    rule = RULES[FAMILIES.get(family, family)]
    return rule.score(sorted(free), n, allocatable or healthy or rule.chips, multi)


def soft_share(used: dict, unused: list, request: dict, chip_hbm_mb: int) -> dict:
    chosen = select_npus(unused, share={"used": used, "request": request, "chip_hbm_mb": chip_hbm_mb})
    (chip,) = chosen["chips"]
    return {"chip": chip, "score": chosen["score"]}


def blocks(taken: list) -> dict:
    """Return how many blocks of a job are in each SuperPod."""
    return {"superpods": sorted(set(taken)), "blocks_per_superpod": {str(pod): taken.count(pod) for pod in taken}, "error": None}


def superpod(**given: object) -> dict:
    return blocks([pod for pod, _hosts in superpods.take_blocks(**given)])


def job_size(
    family: str, replicas: int | None = None, per_task: int | None = None, sp_block: int | None = None, node_npus: int = 16
) -> bool:
    if family == "superpod":
        return request.of_superpod(RULES["a3"].single, per_task, replicas, sp_block, node_npus) is None
    return per_task is None or per_task in RULES[family].sizes(replicas > 1)


def cores_of(core_of_cpu: Sequence[int]) -> dict[int, int]:
    """Return ``{core: mask of its CPUs}``, or the same of nodes."""
    found: dict[int, int] = {}
    for cpu, core in enumerate(core_of_cpu):
        found[core] = found.get(core, 0) | 1 << cpu
    return found


def near_nodes(machine: dict, free_cpus: str, request: int, hint_nodes: list) -> str:
    require_known(machine, "cpus core_of_cpu numa_of_cpu", "machine")
    nodes, cores = cores_of(machine["numa_of_cpu"]), cores_of(machine["core_of_cpu"]).values()
    model = topology_manager.units(mask(machine["cpus"]), nodes, (), (), cores)
    return text_of(kubelet.allocate(model, mask(free_cpus), request, nodes=hint_nodes))


def placement(given: dict, expected: dict) -> None:
    for node in given["nodes"].values():
        require_known(node, "policy capacity free", "node")
    found = place(given["nodes"], {"cpus": given["request"], "policy": given["policy"], "weight": given["weight"]})
    assert [task["host"] for task in found["tasks"]] == ([] if expected["node"] is None else [expected["node"]])
    assert {entry["host"]: entry["numa"] for entry in found["hosts"]} == expected["fitting"]
    assert {entry["host"]: entry["scores"]["numa"] for entry in found["hosts"]} == expected["scores"]
    assert {entry["host"] for entry in found["refused"]} == set(given["nodes"]) - set(expected["fitting"])


def numa_scores(numa_nodes_used: dict, weight: int) -> dict:
    most = max(numa_nodes_used.values())
    return {name: _place.numa_score(used, most, weight) for name, used in numa_nodes_used.items()}


def service_superpod(
    product: str, free_nodes: dict, service_on: list, nodes_per_block: int, blocks_wanted: int, reserve_nodes: int = 0
) -> dict:
    free = {(int(pod), 0): count for pod, count in free_nodes.items()}
    on = [(pod, 0) for pod in service_on]
    return blocks([pod for pod, _rack in superpods.take_instances(free, on, blocks_wanted, nodes_per_block)])


def racks_of(free_nodes: dict) -> dict:
    return {(int(pod), int(rack)): count for pod, racks_ in free_nodes.items() for rack, count in racks_.items()}


def service_rack(given: dict, expected: dict) -> None:
    on = list(map(tuple, given["service_on"]))
    taken = superpods.take_instances(racks_of(given["free_nodes"]), on, given["blocks_wanted"], given["nodes_per_block"])
    assert sorted({pod for pod, _rack in taken}) == expected["superpods"]
    assert expected["racks"] is None or [list(rack) for rack in taken] == expected["racks"]
    assert not expected.get("all_in_one_rack") or len(set(taken)) == 1


def job_size_950(product: str, **given: object) -> bool:
    for refused in superpods.refusals_950(**given):
        raise ValueError(refused)
    return True


def rack_job(given: dict, expected: dict) -> None:
    limits = (given["replicas"], given["nodes_per_block"], given["nodes_per_ra_block"], given["ub_memory"])
    found: dict[str, dict[int, int]] = {}
    for (pod, rack), count in superpods.take_pieces(racks_of(given["free_nodes"]), *limits):
        hosts = found.setdefault(str(pod), {})
        hosts[rack] = hosts.get(rack, 0) + count
    assert {pod: list(hosts.values()) for pod, hosts in found.items()} == expected["nodes_per_rack_by_superpod"]


def tree_config(resource_level_config: str | None) -> dict:
    found = trees.trees(resource_level_config)
    levels = {name: len(tree.labels) + 2 for name, tree in found.items()}
    return {"trees": list(found), "levels_with_root_and_node": levels, "error": None}


def tree_place(free_nodes: dict, reserved_per_level1: int, replicas: int, affinity_config: str) -> dict:
    paths = [(*above, str(number)) for *above, count in _level1(free_nodes) for number in range(count)]
    taken = [path[-2] for path in trees.place(paths, trees.levels_of(affinity_config, replicas), reserved_per_level1)]
    return {name: taken.count(name) for name in taken}


def _level1(free_nodes: dict, *above: str) -> list:
    rows = []
    for name, below in free_nodes.items():
        rows += _level1(below, *above, name) if isinstance(below, dict) else [(*above, name, below)]
    return rows


def units(table: dict) -> kubelet.Units:
    require_known(table, TOPOLOGY, "topology")
    keys = ("node_cpus", "socket_cpus", "cache_cpus")
    nodes, sockets, caches = ({int(number): mask(cpus) for number, cpus in table[key].items()} for key in keys)
    return kubelet.Units(nodes, sockets, caches, cores_of(table["core_of_cpu"]))


def allocation(function: str, topology: dict, sorting: str = "packed", **given: object) -> str:
    assert sorting in ("packed", "spread")
    return text_of(RUN[function](units(topology), sorting == "spread", **given))


def _reserved(machine: kubelet.Units, spread: bool, reserved_cpu_quantity: str, n: int) -> int:
    chosen = kubelet.reserve(machine, reserved_cpu_quantity)
    assert chosen.bit_count() == n
    return chosen


RUN = {
    "packed": lambda machine, spread, available, n, prefer_align_by_uncore_cache=False: kubelet.packed(
        machine, mask(available), n, by_cache=prefer_align_by_uncore_cache, spread=spread
    ),
    "distributed": lambda machine, spread, available, n, cpu_group_size=1: kubelet.distributed(
        machine, mask(available), n, cpu_group_size, spread=spread
    ),
    "reserved_for_static_policy": _reserved,
    "full_pcpus_only": lambda machine, spread, available, n: kubelet.allocate(
        machine, mask(available), n, kubelet.PolicyOptions(full_pcpus_only=True)
    ),
}


def free_units(given: dict, expected: dict) -> None:
    choice = kubelet.Choice(units(given["topology"]), mask(given["available"]), 0)
    level = FREE_UNITS[given["function"]]
    found = list(choice.threads(kubelet.CORES)) if level == "cpus" else choice.whole(level)
    assert found == expected["units"] if expected["order_matters"] else sorted(found) == sorted(expected["units"])


def merge(given: dict, expected: dict) -> None:
    bits = {node: 1 << position for position, node in enumerate(given["numa_nodes"])}

    def hint(nodes: list | None, preferred: bool) -> topology_manager.Hint:
        return topology_manager.Hint(None if nodes is None else sum(bits[node] for node in nodes), preferred)

    providers = [hints for provider in given["providers"] for hints in (provider or {"any": None}).values()]
    resources = [None if hints is None else [hint(**one) for one in hints] for hints in providers]
    distances = given["distances"] if given["prefer_closest_numa"] else None
    for policy in given["policies"]:
        merged = topology_manager.merge(resources, sum(bits.values()), policy, distances)
        nodes = None if merged.nodes is None else [node for node, bit in bits.items() if merged.nodes & bit]
        assert topology_manager.admits(policy, merged) == expected["admit"][policy], policy
        if policy == "none" or (policy == topology_manager.SINGLE and len(given["policies"]) > 1 and not expected["admit"][policy]):
            continue  # the expected set is that of the other policies
        assert (nodes, merged.preferred) == (expected["nodes"], expected["preferred"]), policy


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
