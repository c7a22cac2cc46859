# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of vLLM-Ascend's own unit tests: pools, what its parsers read, and the side effects that concern plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from adaptors import plans
from adaptors.checks import require_known

from ansible_collections.npu.affinity.plugins.filter.cpumask import cpumask
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._npu_smi import parse_mapping, parse_topo
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist, cpus_of, mask_of, text_in_order
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import machine, planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import roles as _roles
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import topo_affinity

SIDE_EFFECT = "id test fact input command commands error order uvb_cpus log warning_contains writes not_run"
STEPS = {"global_slice": "global_slice", "topo_affinity": "topo_affinity", "ascend950": "cluster"}
ROLES = ("irq", "main", "acl", "release")


def pools(given: dict, expected: dict) -> None:
    if not given["allowed_cpus"] and given["step"] != "allocate":
        pytest.skip("a host without CPUs is refused, not planned in silence")
    made = entries(given)
    assert not expected.get("skipped") or made == {}
    if "pools" in expected:
        assert {number: entry["pool"] for number, entry in made.items()} == expected["pools"]
    for number, roles in expected.get("roles", {}).items():
        assert {role: made[number][role] for role in ROLES} == roles


def entries(given: dict) -> dict[str, dict[str, str]]:
    """Return the entries by NPU of a plan, or what the split into roles gives where the pools are given."""
    family = given["device_type"].lower()
    if given["step"] == "allocate":
        made = {}
        for number, pool in given["pools"].items():
            card = machine.Card("npu", int(number), None, 0, family, None, None)
            roles = _roles.split(card, expand(pool), 5)
            made[number] = {role: text_in_order(cpus) for role, cpus in roles._asdict().items()}
        return made
    affinity = given["npu_affinity"]
    total = given["total_npus"] or len(affinity) or len(given["running"])
    npus = [plans.npu(number, affinity.get(str(number), "" if affinity else None), family) for number in range(total)]
    made = planner.plan(
        plans.of_case(given, npus),
        strategy=STEPS[given["step"].split("+")[0]],
        cpus=given["allowed_cpus"],
        npus=given["running"],
        min_cpus=1 if given["step"] == "topo_affinity" else 5,  # there the minimum belongs to the step that splits roles
        repair=False,
    )
    assert bool(made["npus"]) or not given["running"] or made["warnings"]
    return {str(entry["id"]): entry for entry in made["npus"]}


def parser(given: dict, expected: dict) -> None:
    read = PARSERS.get(given["fn"])
    if read is None:
        pytest.skip(NOT_OURS[given["fn"]])
    found = read(given)
    assert "error" in expected or found == expected["value"]


def npu_map(given: dict) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    for row in parse_mapping(given["text"]):
        logic = row["card"] if row["logic_id"] is None else row["logic_id"]
        result.setdefault(str(row["card"]), {})[str(row["chip"])] = str(logic)
    return result


def extend(given: dict) -> list[int]:
    nodes = {int(node): mask_of(cpus) for node, cpus in given["numa"].items()}
    return cpus_of(topo_affinity.with_next_node(mask_of(given["value"]), nodes, mask_of(given["allowed"])))


def distribute(given: dict) -> dict[str, list[int]]:
    numbers = given["value"]["npus"]
    pools = topo_affinity.split(mask_of(given["value"]["pool"]), len(numbers))
    return {str(number): cpus_of(cpus) for number, cpus in zip(numbers, pools, strict=True)}


def mode(given: dict) -> str:
    """Return the strategy that ``auto`` takes; A5 has clusters of its own, which upstream builds inside its topo mode."""
    family = given["text"].lower()
    used = alone("0-63", "0-63", family)["strategy"]
    assert (used == "cluster") == (family == "a5")
    return "topo_affinity" if used == "cluster" else used


PARSERS: dict[str, Callable[[dict], Any]] = {
    "npu_map": npu_map,
    "topo": lambda given: {str(row["id"]): expand(row["affinity"]) for row in parse_topo(given["text"]) if row["affinity"]},
    "cpulist": lambda given: expand(given["text"]),
    "mask": lambda given: cpumask(given["value"]),
    "extend": extend,
    "distribute": distribute,
    "mode": mode,
}
NOT_OURS = {
    "all_logic_npus": "logic ids are numbers since parse_mapping, see npu_map",
    "resolve": "the topology joins processes and chips of a host; no function answers for one of them",
    "running": "a plan covers all NPUs of a host, not those with a process that a container sees",
    "status": "plans start from the online CPUs, not from the affinity of the calling process",
    "lscpu_e": "CPUs and NUMA nodes come from sysfs, not from lscpu",
    "tpc": "threads of a core come from sysfs, not from lscpu",
    "threads": "threads of workers are pinned by the thread binding, not by the plan",
    "uvb": "poll threads are found when a plan is applied",
    "arm": "plans are made for every architecture",
}


def side_effect(case: dict, document: dict) -> None:
    require_known(case, SIDE_EFFECT, "side effect")
    check = SIDE_EFFECTS.get(case["id"])
    if check is None:
        pytest.skip("concerns the way in which a worker process applies its plan: commands, files, threads and log")
    check(case)


def alone(pool: str, affinity: str | None, family: str, **options: bool) -> dict[str, Any]:
    """Return the plan of a host with one NPU."""
    return planner.plan(plans.topology({"0": pool}, [plans.npu(0, affinity, family)]), **options)


def masks(case: dict) -> None:
    pool = case.get("input", {}).get("pool", [8, 9, 10])
    cpus = as_cpulist([*pool, pool[-1] + 1, pool[-1] + 2])
    first = expand(alone(cpus, cpus, "a2")["npus"][0]["irq"])
    assert [cpumask(cpu) for cpu in first] == [mask for path, mask in case["writes"]]


def poll_threads(case: dict) -> None:
    given = case["input"]
    topology = plans.topology({node: as_cpulist(cpus) for node, cpus in given["numa"].items()}, [plans.npu(0, None, "a5")])
    assert cpus_of(plans.polled(topology, as_cpulist(given["allowed"]))) == case["uvb_cpus"]


def fallback(case: dict) -> None:
    made = alone("0-9", None, "a2", repair=False)
    assert (made["strategy"], made["warnings"]) == ("global_slice", [topo_affinity.FALLBACK])


def no_roles(case: dict) -> None:
    assert alone("0-9", "0-9", "a5")["npus"][0]["irq"] == ""


SIDE_EFFECTS = {"s08": poll_threads, "s09": poll_threads, "s17": masks, "s24": no_roles, "s25": masks, "s29": fallback}
