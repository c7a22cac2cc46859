# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips of a host, scores of hosts, shares of a chip and SuperPods by the rules of MindCluster; hosts by those of Volcano."""

from __future__ import annotations

from collections.abc import Sequence

from adaptors.checks import contains, require_known

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.filter.select_npus import select_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import racks, services, superpods, request, trees
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import place as _place
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

FAMILIES = {"atlas800T_A2_and_Atlas900_A2_basic_unit": "a2"}


def pick(family: str, free: list, n: int, multi: bool = False) -> dict:
    return {"chips": select_npus(free, n, FAMILIES.get(family, family), multi)["chips"]}


def score(family: str, free: list, n: int, allocatable: int = 0, healthy: int = 0, multi: bool = False) -> dict:
    rule = RULES[FAMILIES.get(family, family)]
    return {"score": rule.score(sorted(free), n, allocatable or healthy or rule.chips, multi)}


def soft_share(used: dict, unused: list, request: dict, chip_hbm_mb: int) -> dict:
    chosen = select_npus(unused, share={"used": used, "request": request, "chip_hbm_mb": chip_hbm_mb})
    (chip,) = chosen["chips"]
    return {"chip": chip, "score": chosen["score"]}


def no_chip(expected: dict, message: str) -> bool:
    return expected["chip"] is None and "no fit" in message


def superpod(**given: object) -> dict:
    taken = [pod for pod, _hosts in superpods.take(**given)]
    return {"superpods": sorted(set(taken)), "blocks_per_superpod": {str(pod): taken.count(pod) for pod in taken}}


def prefix(expected: dict, message: str) -> bool:
    return bool(expected["error_prefix"]) and message.startswith(expected["error_prefix"])


def job_size(
    family: str, replicas: int | None = None, per_task: int | None = None, sp_block: int | None = None, node_npus: int = 16
) -> dict:
    if family == "superpod":
        return {"ok": request.of_superpod(RULES["a3"].single, per_task, replicas, sp_block, node_npus) is None}
    return {"ok": per_task is None or per_task in RULES[family].sizes((replicas or 1) > 1)}


def cores_of(core_of_cpu: Sequence[int]) -> dict[int, int]:
    """Return ``{core: mask of its CPUs}``, or the same of nodes."""
    found: dict[int, int] = {}
    for cpu, core in enumerate(core_of_cpu):
        found[core] = found.get(core, 0) | 1 << cpu
    return found


def allocation(machine: dict, free_cpus: str, request: int, hint_nodes: list) -> dict:
    require_known(machine, "cpus core_of_cpu numa_of_cpu", "machine")
    model = units(mask(machine["cpus"]), cores_of(machine["numa_of_cpu"]), (), (), cores_of(machine["core_of_cpu"]).values())
    return {"cpus": text_of(allocate(model, mask(free_cpus), request, nodes=hint_nodes))}


def no_cpus(expected: dict, message: str) -> bool:
    return expected["cpus"] == ""


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
    return {"scores": {name: _place.numa_score(used, most, weight) for name, used in numa_nodes_used.items()}}


def service_superpod(
    product: str, free_nodes: dict, service_on: list, nodes_per_block: int, blocks_wanted: int, reserve_nodes: int = 0
) -> dict:
    free = {(int(pod), 0): count for pod, count in free_nodes.items()}
    taken = [pod for pod, _rack in services.take(free, [(pod, 0) for pod in service_on], blocks_wanted, nodes_per_block)]
    return {"superpods": sorted(set(taken)), "blocks_per_superpod": {str(pod): taken.count(pod) for pod in taken}, "error": None}


def racks_of(free_nodes: dict) -> dict:
    return {(int(pod), int(rack)): count for pod, racks_ in free_nodes.items() for rack, count in racks_.items()}


def service_rack(given: dict, expected: dict) -> None:
    on = list(map(tuple, given["service_on"]))
    try:
        taken = services.take(racks_of(given["free_nodes"]), on, given["blocks_wanted"], given["nodes_per_block"])
    except ValueError as refused:
        assert contains(expected, str(refused)), str(refused)
        return
    assert expected["error"] is None
    assert sorted({pod for pod, _rack in taken}) == expected["superpods"]
    assert expected["racks"] is None or [list(rack) for rack in taken] == expected["racks"]
    assert not expected.get("all_in_one_rack") or len(set(taken)) == 1


def rack_order(left: dict, right: dict) -> dict:
    return {"left_first": services.order(**left) < services.order(**right)}


def service_label(labels: dict | None) -> dict:
    return {"service": services.service_of(labels)}


def service_on(service: str, job: str, jobs: dict) -> dict:
    return {"service_on": services.running(service, job, jobs, "superpods")}


def job_size_950(product: str, **given: object) -> dict:
    refused = racks.refusal(**given)
    if refused:
        raise ValueError(refused)
    return {"ok": True}


def size_refused(expected: dict, message: str) -> bool:
    return not expected["ok"] and expected["message"] in message


def rack_job(given: dict, expected: dict) -> None:
    arguments = (given["replicas"], given["nodes_per_block"], given["nodes_per_ra_block"], given["ub_memory"])
    try:
        taken = racks.take(racks_of(given["free_nodes"]), *arguments)
    except ValueError as refused:
        assert contains(expected, str(refused)), str(refused)
        return
    assert expected["error"] is None
    found: dict[str, dict[int, int]] = {}
    for pod, rack, count in taken:
        hosts = found.setdefault(str(pod), {})
        hosts[rack] = hosts.get(rack, 0) + count
    assert {pod: list(hosts.values()) for pod, hosts in found.items()} == expected["nodes_per_rack_by_superpod"]


def tree_config(resource_level_config: str | None) -> dict:
    found = trees.trees(resource_level_config)
    levels = {name: len(tree.labels) + 2 for name, tree in found.items()}
    return {"trees": list(found), "levels_with_root_and_node": levels, "error": None}


def task_levels(affinity_config: str, replicas: int) -> dict:
    return {"levels": [list(level) for level in trees.levels_of(affinity_config, replicas)], "error": None}


def tree_place(free_nodes: dict, reserved_per_level1: int, replicas: int, affinity_config: str) -> dict:
    paths = [(*above, str(number)) for *above, count in _level1(free_nodes) for number in range(count)]
    taken = [path[-2] for path in trees.place(paths, trees.levels_of(affinity_config, replicas), reserved_per_level1)]
    return {"nodes_per_level1": {name: taken.count(name) for name in taken}, "error": None}


def _level1(free_nodes: dict, *above: str) -> list:
    rows = []
    for name, below in free_nodes.items():
        rows += _level1(below, *above, name) if isinstance(below, dict) else [(*above, name, below)]
    return rows
