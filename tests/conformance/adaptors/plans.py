# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans by vLLM-Ascend's rules and equal shares of a node: ``repair: false`` gives what was published, its errors included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from adaptors.checks import contains, require_known

from ansible_collections.npu.affinity.plugins.filter.cpumask import cpumask
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import parse_topo
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine, planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import options as _options
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies.cluster import poll_cpus

INPUT = (
    "device_type shape numa_map npu_map npu_affinity raw_topo allowed_cpus processes visible_devices rank offline_cpus arch"
    " threads_per_core uvb_threads have_migratepages proc_irq_writable irqbalance"
)
EXPECTED = (
    "outcome reason error method total_npus running current_npu pools roles memory_node irq_masks uvb_cpus ghost_nodes warnings"
    " irqbalance_stopped overlap overlap_cpus overlap_with_hidden"
)
HOST = "device_type shape cpuset_kind listing allowed_cpus numa_map npu_affinity threads_per_core"
METHODS = {"clusters": "cluster"}
WHEN_APPLYING = ("Can't find PCI address.", "[cpu_bind_ascend_950] uvb_poll_window_thread not found.")
"""Beginnings of warnings that come up when a plan is applied, not when it is made."""
SKIPPED = "skipped"
MACHINE = "about node_cpus siblings cores_per_cache devices_per_node"
SMT = {"whole_cores": "cores", "id_slices": "threads"}


def topology(
    numa_map: Mapping[str, str],
    npus: Iterable[Mapping[str, Any]],
    online: Iterable[str] = (),
    offline: str = "",
    threads_per_core: int = 1,
    caches: Iterable[str] = (),
    siblings: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the topology of a case. ``online`` are cpulists; siblings without a list are neighbours by number within a node."""
    cpus = sorted({cpu for text in [*numa_map.values(), *online] for cpu in expand(text)} - set(expand(offline)))
    nodes = [{"id": int(node), "cpus": compress(set(expand(text)) & set(cpus)), "memory_mib": 1024} for node, text in numa_map.items()]
    if siblings is None:
        members = [expand(node["cpus"]) for node in nodes if threads_per_core > 1]
        starts = [(cpus, first) for cpus in members for first in range(0, len(cpus), threads_per_core)]
        siblings = [compress(cpus[first : first + threads_per_core]) for cpus, first in starts]
    found = {"online": compress(cpus), "offline": offline, "isolated": "", "siblings": list(siblings)}
    found["caches"] = list(caches) or [node["cpus"] for node in nodes if node["cpus"]]
    return {"schema": 1, "cpus": found, "numa": nodes, "npus": list(npus), "kubelet": None, "applied": None, "problems": []}


def of_case(given: dict, npus: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    threads = given.get("threads_per_core", given.get("cluster_size", 8) // 8)
    return topology(given["numa_map"], npus, [given["allowed_cpus"]], compress(expand(given.get("offline_cpus") or "")), threads)


def npu(number: int, affinity: str | None, family: str, numa_map: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return an NPU; with ``numa_map`` on the node that holds its whole affinity, as a kernel would say."""
    cpus = set(expand(affinity or ""))
    nodes = [int(node) for node, members in (numa_map or {}).items() if cpus and cpus <= set(expand(members))]
    place = {"pci": f"0000:{number:02x}:00.0", "numa": nodes[0] if nodes else None, "affinity": affinity}
    return {"kind": "npu", "id": number, "chip": 0, "family": family, **place, **more}


def published(given: dict, expected: dict) -> None:
    if expected.get("reason") == "non_arm":
        pytest.skip("plans are made for every architecture")
    if given.get("raw_topo") and any(row["affinity"] and "," in row["affinity"] for row in parse_topo(given["raw_topo"])):
        pytest.skip("parse_topo reads the whole CPU list, of which the published reader takes the last word only")
    if expected.get("error", {}).get("stage") == "device_info":
        planner.plan(host(given), npus=given["visible_devices"].split(",") if given["visible_devices"] else [], repair=False)
        return
    cpus = as_cpulist(given["allowed_cpus"])
    compare(planner.plan(host(given), cpus=cpus, npus=running(given), repair=False), expected)
    if "uvb_cpus" in expected:
        assert text_of(polled(host(given), cpus)) == expected["uvb_cpus"]


def refused(expected: dict, message: str) -> bool:
    return expected.get("error", {}).get("stage") == "device_info" or contains(expected, message)


def polled(topology: dict, cpus: str) -> int:
    """Return the CPUs of the poll threads."""
    return poll_cpus(machine.read(topology, _options.Options("cluster", cpus, "", None, "cores", 5, False, False)))


def compare(plan: dict, expected: dict) -> None:
    entries = {str(entry["id"]): entry for entry in plan["npus"]}
    assert {number: entry["pool"] for number, entry in entries.items()} == expected.get("pools", {})
    assert plan["strategy"] == METHODS.get(expected["method"], expected["method"])
    assert plan["quality"]["disjoint"] or expected["overlap_with_hidden"]
    for number, node in expected.get("memory_node", {}).items():
        assert entries[number]["mems"] == str(node), f"memory node of NPU {number}"
    if "roles" in expected:
        entry = entries[str(expected["current_npu"])]
        assert {role: entry[role] for role in ("irq", "main", "acl", "release") if entry[role]} == expected["roles"]
    if "irq_masks" in expected:
        assert [cpumask(cpu) for cpu in expand(entries[str(expected["current_npu"])]["irq"])] == expected["irq_masks"]
    assert plan["warnings"] == [warning for warning in expected.get("warnings", ()) if not warning.startswith(WHEN_APPLYING)]


def host(given: dict) -> dict:
    """Return the topology: logic NPUs with the affinity that the topology prints under their number."""
    affinity = given["npu_affinity"]
    if "raw_topo" in given:
        affinity = {str(row["id"]): row["affinity"] for row in parse_topo(given["raw_topo"]) if row["affinity"]}
    missing = "" if affinity else None
    family = given["device_type"].lower()
    of = {logic: affinity.get(str(logic), missing) for _card, _chip, logic in given["npu_map"]}
    return of_case(given, [npu(n, of[n], family, given["numa_map"], card=card, chip=chip) for card, chip, n in given["npu_map"]])


def running(given: dict) -> list[int]:
    """Return the logic ids of the NPUs with processes that the process may see."""
    logic = {(card, chip): number for card, chip, number in given["npu_map"]}
    numbers = {logic[tuple(place)] for place in given["processes"]}
    visible = given["visible_devices"]
    return sorted(numbers & {int(number) for number in visible.split(",")} if visible else numbers)


def listed(given: dict, numbers: Sequence[str]) -> dict:
    family, affinity = given["device_type"].lower(), given["npu_affinity"]
    return of_case(given, [npu(place, affinity[number], family, given["numa_map"]) for place, number in enumerate(numbers)])


def published_host(given: dict, expected: dict) -> None:
    everybody = sorted(given["npu_affinity"], key=int)
    cpus = as_cpulist(given["allowed_cpus"])
    pools, errors = {}, {}
    for number in everybody:
        alone = {"visible_npus": [int(number)], "bound_by": "workers"} if given["listing"] == "container_view" else {}
        try:
            made = planner.plan(listed(given, everybody), cpus=cpus, npus=[int(number)], repair=False, **alone)
        except ValueError as error:
            errors[number] = SKIPPED if "action: skip worker CPU binding" in str(error) else str(error)
            continue
        if made["npus"]:
            pools[number] = made["npus"][0]["pool"]
        else:
            assert made["warnings"]
            errors[number] = SKIPPED
    assert pools == expected["pools_by_npu"]
    assert errors.keys() == expected["errors_by_npu"].keys()
    assert all(text in errors[number] for number, text in expected["errors_by_npu"].items())
    held = [cpu for pool in pools.values() for cpu in expand(pool)]
    assert compress({cpu for cpu in held if held.count(cpu) > 1}) == expected["overlapping_cpus"]
    assert compress(set(expand(cpus)) - set(held)) == expected["unused_cpus"]


def repaired_host(given: dict, expected: dict) -> None:
    """All NPUs of the host are listed, whatever a container sees of it: a plan of a host knows its host."""
    cpus = as_cpulist(given["allowed_cpus"])
    made = planner.plan(listed(given, sorted(given["npu_affinity"], key=int)), cpus=cpus)
    held = [cpu for entry in made["npus"] for cpu in expand(entry["pool"])]
    assert len(made["npus"]) == len(given["npu_affinity"])
    assert len(held) == len(set(held)), "a CPU is in two pools"
    assert set(held) <= set(expand(cpus))
    assert made["quality"]["disjoint"]


def gpus(machine: dict, devices_per_node: dict | None = None) -> dict:
    """Return a host of GPUs with the machine's cores and caches."""
    require_known(machine, MACHINE, "machine")
    nodes = [expand(cpus) for cpus in machine["node_cpus"].values()]
    everything = sorted(cpu for node in nodes for cpu in node)
    if machine["siblings"] == "none":
        cores = [[cpu] for cpu in everything]
    elif machine["siblings"] == "2k and 2k+1":
        cores = [everything[first : first + 2] for first in everything[::2]]
    else:
        half = len(everything) // 2
        assert machine["siblings"] == f"c and c+{half}"
        cores = [[cpu, cpu + half] for cpu in everything[:half]]
    size = machine.get("cores_per_cache", len(cores))
    cards = devices_per_node or machine["devices_per_node"]
    return topology(
        machine["node_cpus"],
        [
            {"kind": "gpu", "id": card, "family": "gpu", "pci": f"0000:{card:02x}:00.0", "numa": int(node), "affinity": None}
            for node, members in cards.items()
            for card in members
        ],
        siblings=[compress(core) for core in cores if len(core) > 1],
        caches=[compress(cpu for core in cores[first : first + size] for cpu in core) for first in range(0, len(cores), size)],
    )


def even_split(given: dict, expected: dict) -> None:
    host = gpus(given["machine"], given.get("devices_per_node"))
    options = {"cpus": given.get("allowed"), "housekeeping": expand(given.get("reserved", "")), "smt": SMT[given["method"]], "min_cpus": 1}
    for repair in (False, True):
        made = planner.plan(host, npus=given.get("task_devices"), repair=repair, **options)
        assert made["strategy"] == "even_split"
        if "shares" in expected:
            assert {str(entry["id"]): entry["pool"] for entry in made["npus"]} == expected["shares"]
        if "cpus" in expected:
            union = {cpu for entry in made["npus"] for cpu in expand(entry["pool"])}
            assert compress(union) == expected["cpus"]
            assert compress({node for entry in made["npus"] for node in expand(entry["mems"])}) == expected["mems"]
            counts = [len(union & set(expand(node["cpus"]))) for node in host["numa"]]
            assert [count for count in counts if count] == expected.get("cpus_per_node", [count for count in counts if count])
