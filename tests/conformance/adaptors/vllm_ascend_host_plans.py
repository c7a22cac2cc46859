# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of whole hosts: ``repair: false`` gives what vLLM-Ascend gives, and a repaired plan overlaps nowhere."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence

from adaptors import _topology

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

INPUT = {"device_type", "shape", "cpuset_kind", "listing", "allowed_cpus", "numa_map", "npu_affinity", "threads_per_core"}
EXPECTED = {"pools_by_npu", "errors_by_npu", "overlapping_cpus", "unused_cpus", "overlap"}
SKIPPED = "skipped"


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for host in document["hosts"]:
        yield host["id"], lambda host=host: check_published(host["input"], host["expected"])
        yield f"{host['id']} repaired", lambda host=host: check_repaired(host["input"])


def listed(given: dict, numbers: Sequence[str]) -> dict:
    """Return the topology of the host."""
    family = given["device_type"].lower()
    return _topology.topology(
        given["numa_map"],
        [_topology.npu(position, given["npu_affinity"][number], family, given["numa_map"]) for position, number in enumerate(numbers)],
        online=[given["allowed_cpus"]],
        threads_per_core=given.get("threads_per_core", 1),
    )


def check_published(given: dict, expected: dict) -> None:
    _topology.require_known(given, INPUT, "input")
    _topology.require_known(expected, EXPECTED, "expected")
    everybody = sorted(given["npu_affinity"], key=int)
    cpus = as_cpulist(given["allowed_cpus"])
    pools, errors = {}, {}
    for number in everybody:
        alone = {"visible_npus": [int(number)], "bound_by": "workers"} if given["listing"] == "container_view" else {}
        try:
            made = plan(listed(given, everybody), cpus=cpus, npus=[int(number)], repair=False, **alone)
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


def check_repaired(given: dict) -> None:
    """All NPUs of the host are listed, whatever a container sees of it: a plan of a host knows its host."""
    cpus = as_cpulist(given["allowed_cpus"])
    made = plan(listed(given, sorted(given["npu_affinity"], key=int)), cpus=cpus)
    held = [cpu for entry in made["npus"] for cpu in expand(entry["pool"])]
    assert len(made["npus"]) == len(given["npu_affinity"])
    assert len(held) == len(set(held)), "a CPU is in two pools"
    assert set(held) <= set(expand(cpus))
    assert made["quality"]["disjoint"]
