# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of single worker processes: ``repair: false`` must give what vLLM-Ascend gives, its errors included."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import _topology

from ansible_collections.npu.affinity.plugins.filter.cpumask import cpumask
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import parse_topo
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine, planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import options as _options
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies.cluster import poll_cpus

INPUT = {
    "device_type",
    "shape",
    "numa_map",
    "npu_map",
    "npu_affinity",
    "raw_topo",
    "allowed_cpus",
    "processes",
    "visible_devices",
    "rank",
    "offline_cpus",
    "arch",
    "threads_per_core",
    "uvb_threads",
    "have_migratepages",
    "proc_irq_writable",
    "irqbalance",
}
EXPECTED = {
    "outcome",
    "reason",
    "error",
    "method",
    "total_npus",
    "running",
    "current_npu",
    "pools",
    "roles",
    "memory_node",
    "irq_masks",
    "uvb_cpus",
    "ghost_nodes",
    "warnings",
    "irqbalance_stopped",
    "overlap",
    "overlap_cpus",
    "overlap_with_hidden",
}
METHODS = {"clusters": "cluster"}
WHEN_APPLYING = ("Can't find PCI address.", "[cpu_bind_ascend_950] uvb_poll_window_thread not found.")
"""Beginnings of warnings that come up when a plan is applied, not when it is made."""


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for case in document["cases"]:
        yield case["id"], lambda case=case: check(case["input"], case["expected"])


def check(given: dict, expected: dict) -> None:
    _topology.require_known(given, INPUT, "input")
    _topology.require_known(expected, EXPECTED, "expected")
    if expected.get("reason") == "non_arm":
        pytest.skip("plans are made for every architecture")
    if given.get("raw_topo") and any(row["affinity"] and "," in row["affinity"] for row in parse_topo(given["raw_topo"])):
        pytest.skip("parse_topo reads the whole CPU list, of which the published reader takes the last word only")
    if expected.get("error", {}).get("stage") == "device_info":
        with pytest.raises(ValueError):
            planner.plan(host(given), npus=(given["visible_devices"] or "").split(",") if given["visible_devices"] else [], repair=False)
        return
    arguments = {"cpus": as_cpulist(given["allowed_cpus"]), "npus": running(given), "repair": False}
    if expected["outcome"] == "error":
        with pytest.raises(ValueError) as raised:
            planner.plan(host(given), **arguments)
        assert expected["error"]["message"] in str(raised.value)
        return
    compare(planner.plan(host(given), **arguments), expected)
    if "uvb_cpus" in expected:
        options = _options.Options("cluster", arguments["cpus"], "", None, "cores", 5, False, False)
        assert text_of(poll_cpus(machine.read(host(given), options))) == expected["uvb_cpus"]


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
    return _topology.topology(
        given["numa_map"],
        [
            _topology.npu(logic, affinity.get(str(logic), missing), family, given["numa_map"], card=card, chip=chip)
            for card, chip, logic in given["npu_map"]
        ],
        online=[given["allowed_cpus"]],
        offline=compress(expand(given.get("offline_cpus") or "")),
        threads_per_core=given.get("threads_per_core", 1),
    )


def running(given: dict) -> list[int]:
    """Return the logic ids of the NPUs with processes that the process may see."""
    logic = {(card, chip): number for card, chip, number in given["npu_map"]}
    numbers = {logic[tuple(place)] for place in given["processes"]}
    visible = given["visible_devices"]
    return sorted(numbers & {int(number) for number in visible.split(",")} if visible else numbers)
