# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the kubelet's static CPU manager hands out."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import _topology

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus as kubelet

LISTS = ("allocation", "free_units", "resize", "reserved_and_checks")
TOPOLOGY = {"cpus", "cores", "numa_nodes", "sockets", "last_level_caches", "upstream_name"}
TOPOLOGY |= {"node_cpus", "socket_cpus", "cache_cpus", "core_of_cpu"}
FREE_UNITS = {"free_sockets": "sockets", "free_numa_nodes": "nodes", "free_cores": "cores", "free_cpus": "cpus"}
ALLOCATION = {"function", "topology", "available", "n", "cpu_group_size", "sorting", "prefer_align_by_uncore_cache"}
FIELDS = {
    "allocation": (ALLOCATION, {"cpus", "error"}),
    "free_units": ({"function", "topology", "available"}, {"units", "order_matters"}),
    "resize": (ALLOCATION | {"reusable", "must_keep"}, {"cpus", "error"}),
    "reserved_and_checks": ({"function", "topology", "reserved_cpu_quantity", "n", "available"}, {"cpus", "error"}),
}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    known = {"about", "sources", "origin", "fields", "topologies", *LISTS}
    _topology.require_known(document, known, "the document")
    for name in LISTS:
        for case in document.get(name, ()):
            table = document["topologies"][case["input"]["topology"]]
            yield f"{case['id']} {case['note']}".strip(), lambda name=name, case=case, table=table: check(name, case, table)


def units(table: dict) -> kubelet.Units:
    _topology.require_known(table, TOPOLOGY, "topology")
    nodes, sockets, caches = (
        {int(number): mask(cpus) for number, cpus in table[key].items()} for key in ("node_cpus", "socket_cpus", "cache_cpus")
    )
    cores: dict[int, int] = {}
    for cpu, core in enumerate(table["core_of_cpu"]):
        cores[core] = cores.get(core, 0) | 1 << cpu
    return kubelet.Units(nodes, sockets, caches, cores)


def check(name: str, case: dict, table: dict) -> None:
    _topology.require_known(case["input"], FIELDS[name][0], "input")
    _topology.require_known(case["expected"], FIELDS[name][1], "expected")
    if name == "resize":
        pytest.skip("the collection does not resize containers: the cases are those of a branch of the kubelet, of no release")
    given, expected, machine = case["input"], case["expected"], units(table)
    if name == "free_units":
        found = free_units(machine, FREE_UNITS[given["function"]], mask(given["available"]))
        assert found == expected["units"] if expected["order_matters"] else sorted(found) == sorted(expected["units"])
        return
    try:
        chosen, error = RUN[given["function"]](machine, given), None
    except ValueError as refused:
        chosen, error = None, str(refused)
    assert error == expected["error"]
    assert (None if chosen is None else text_of(chosen)) == expected["cpus"]


def free_units(machine: kubelet.Units, level: str, available: int) -> list[int]:
    choice = kubelet.Choice(machine, available, 0)
    return list(choice.threads(kubelet.CORES)) if level == "cpus" else choice.whole(level)


def options(given: dict) -> dict:
    assert given.get("sorting", "packed") in ("packed", "spread")
    return {"spread": given.get("sorting") == "spread"}


def packed(machine: kubelet.Units, given: dict) -> int:
    by_cache = given.get("prefer_align_by_uncore_cache", False)
    return kubelet.packed(machine, mask(given["available"]), given["n"], by_cache=by_cache, **options(given))


def distributed(machine: kubelet.Units, given: dict) -> int:
    return kubelet.distributed(machine, mask(given["available"]), given["n"], given.get("cpu_group_size", 1), **options(given))


def reserved(machine: kubelet.Units, given: dict) -> int:
    chosen = kubelet.reserve(machine, given["reserved_cpu_quantity"])
    assert chosen.bit_count() == given["n"]
    return chosen


def full_pcpus_only(machine: kubelet.Units, given: dict) -> int:
    return kubelet.allocate(machine, mask(given["available"]), given["n"], kubelet.PolicyOptions(full_pcpus_only=True))


RUN = {
    "packed": packed,
    "distributed": distributed,
    "reserved_for_static_policy": reserved,
    "full_pcpus_only": full_pcpus_only,
}
