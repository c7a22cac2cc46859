# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of ``auto`` compared with the best that a solver finds: disjoint, the smallest pool, remote CPUs by distance, whole cores.

Cores that are shared, and pools of a node that differ by more than one core, are no plans at all, for the solver neither."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_checks import cpu_set, defects, look  # noqa: E402
from planner_hosts import host  # noqa: E402
from solver import best, cost  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402

SHARDS = 8
SMALL, LARGE = 1000, 200
"""So many machines of up to 16 CPUs and 4 NPUs, and of up to 48 CPUs and 12 NPUs."""
EFFORT = 2.0
"""So long the solver works on a large machine, in its own seconds."""
FAMILIES = ("a2", "a3", "a5", "310p", "gpu")


def machine(seed, most_cpus, most_npus):
    """Return a random host whose NPUs are on nodes with CPUs, and options."""
    details = Random(seed)
    threads = details.choice([1, 1, 2, 2, 4] if most_cpus > 16 else [1, 1, 2])
    left = details.randint(2, most_cpus // threads)
    nodes = details.randint(1, min(8 if most_cpus > 16 else 4, left))
    cuts = sorted(details.sample(range(1, left), nodes - 1))
    cores = [end - start for start, end in zip([0, *cuts], [*cuts, left], strict=True)]
    topology = host(
        [details.randrange(nodes) for _npu in range(details.randint(1, most_npus))],
        nodes=nodes,
        cores=cores,
        threads=threads,
        numbering=details.choice(["adjacent", "far"]),
        nodes_per_socket=details.randint(1, 4),
        family=details.choice(FAMILIES),
    )
    if details.randint(0, 3) == 3:
        for node in topology["numa"]:
            node["distances"] = {other: value if value == 10 else details.randint(11, 40) for other, value in node["distances"].items()}
    options = {"min_cpus": details.choice([1, 2, 3, 5]), "smt": details.choice(["cores", "cores", "threads"])}
    if details.randint(0, 4) == 4:
        everything = sorted(cpu_set(topology["cpus"]["online"]))
        options["cpus"] = compress(details.sample(everything, details.randint(1, len(everything))))
    return topology, options


def attempt(topology, **options):
    try:
        return plan(topology, **options)
    except ValueError as error:
        return str(error)


def published_floor(topology, options):
    """Return what the smallest pool of the published rule is worth: a CPU of several pools is worth a part to each."""
    made = attempt(topology, **options, repair=False)
    if isinstance(made, str) or len(made["npus"]) < len(topology["npus"]):
        return 0
    pools = [cpu_set(entry["pool"]) for entry in made["npus"]]
    users = {cpu: sum(cpu in pool for pool in pools) for pool in pools for cpu in pool}
    return min(int(sum(1 / users[cpu] for cpu in pool) + 1e-9) for pool in pools)


def compared(topology, options, effort=10.0):
    """Return in words how the plan of a host is worse than the best, '' where it is not, with the remote CPUs above the best."""
    seen = look(topology, **options)
    made = attempt(topology, **options)
    if isinstance(made, str) and "None of the CPUs on the NUMA nodes of" in made:
        return "", 0
    found = best(seen, published_floor(topology, options), effort)
    if isinstance(made, str):
        assert found.feasible or found.proved, "the solver needs more time"
        return ("", 0) if not found.feasible else (f"refused: {made}", len(seen.usable))
    if wrong := defects(topology, made, **options):
        return "; ".join(wrong), len(seen.usable)
    if options["smt"] == "cores" and not made["quality"]["whole_cores"]:
        return "cores are split", 0
    pools = {entry["slice"]: cpu_set(entry["pool"]) for entry in made["npus"]}
    reached, count = cost(seen, pools)
    smallest = min(map(len, pools.values()))
    if smallest < found.smallest:
        return f"smallest pool {smallest}, {found.smallest} is possible", found.smallest - smallest
    if reached > found.cost and (found.proved or effort == EFFORT):
        farthest = max(value for node in topology["numa"] for value in node["distances"].values())
        return f"remote {reached} ({count} CPUs), {found.cost} is possible", -(-(reached - found.cost) // farthest)
    return "", 0


@pytest.mark.parametrize("shard", range(SHARDS))
def test_small_machines_have_the_best_plan(shard):
    worse = {}
    for seed in range(shard, SMALL, SHARDS):
        words, _cpus = compared(*machine(seed, 16, 4))
        if words:
            worse[seed] = words
    assert worse == {}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_large_machines_are_near_the_best_plan(shard, record_property):
    cpus = gap = 0
    worse = {}
    for seed in range(shard, LARGE, SHARDS):
        topology, options = machine(10_000 + seed, 48, 12)
        words, count = compared(topology, options, EFFORT)
        cpus += len(cpu_set(topology["cpus"]["online"]))
        gap += count
        if words:
            worse[seed] = words
    print(f"gap: {gap} of {cpus} CPUs; {worse}")
    assert gap <= 0.02 * cpus, worse


def test_npus_of_a_node_that_is_left_out_are_refused_although_others_could_lend():
    """The CPUs that may be divided name the NPUs that take part: those of one socket lose nothing to those of another."""
    topology, options = host([0, 1], nodes=2, cores=8), {"cpus": "0-7", "min_cpus": 4, "smt": "cores"}
    assert best(look(topology, **options), 0).feasible
    assert "None of the CPUs on the NUMA nodes of NPU 1 may be divided" in attempt(topology, **options)


def test_npus_of_a_node_without_cpus_share_the_nearest_one_evenly():
    """The fewest remote CPUs would leave such an NPU the smallest pool that is allowed, next to one of three times the size."""
    topology, options = host([0, 1], nodes=2, cores=[8, 0]), {"min_cpus": 2, "smt": "cores"}
    words, _cpus = compared(topology, options)
    assert words == "remote 48 (4 CPUs), 24 is possible"
    assert [entry["pool"] for entry in plan(topology, **options)["npus"]] == ["0-3", "4-7"]


NOT_BEST = [
    ("a published rule that takes threads of idle cores breaks no invariant, and is kept", (102_525, 48, 12), "cores are split"),
]


@pytest.mark.parametrize("given, words", [row[1:] for row in NOT_BEST], ids=[row[0] for row in NOT_BEST])
def test_other_machines_without_the_best_plan(given, words):
    assert compared(*machine(*given))[0] == words
