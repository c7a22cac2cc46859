# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips of a host, scores of hosts, shares of a chip and SuperPods by the rules of MindCluster; hosts by those of Volcano."""

from __future__ import annotations

from collections.abc import Sequence

from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.filter.select_npus import select_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import superpods, request
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
