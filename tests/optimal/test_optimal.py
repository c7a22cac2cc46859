# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of ``auto`` compared with the best that a solver finds: disjoint, the smallest pool, remote CPUs by distance, whole cores.

Cores that are shared, and pools of a node that differ by more than one core, are no plans at all, in the solver's model either."""

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_checks import cpu_set, defects, look  # noqa: E402
from planner_hosts import host, switch_off  # noqa: E402
from solver import best, better, cost, reached  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402

SHARDS = 8
CLAIMS = 1000, 800
SMALL, LARGE = 5000, 200
"""So many machines of up to 16 CPUs and 4 NPUs, and of up to 48 CPUs and 12 NPUs."""
EFFORT = 2.0
"""So long the solver works on a large machine, in its own seconds."""
DELIBERATE = ("reserves all CPUs",)
"""Refusals whatever could be divided: hosts without a CPU for NPUs."""
FAMILIES = ("a2", "a3", "a5", "310p", "gpu")


def machine(seed, most_cpus, most_npus):
    """Return a random host and options. Some nodes have no CPUs, some CPUs are offline, kept for the system or not to be divided."""
    details = Random(seed)
    threads = details.choice([1, 1, 2, 2, 4] if most_cpus > 16 else [1, 1, 2])
    left = details.randint(2, most_cpus // threads)
    nodes = details.randint(1, min(8 if most_cpus > 16 else 4, left))
    cuts = sorted(details.sample(range(1, left), nodes - 1))
    cores = [end - start for start, end in zip([0, *cuts], [*cuts, left], strict=True)]
    if details.randint(0, 9) == 9:
        cores.insert(details.randint(0, nodes), 0)
    topology = host(
        [details.randrange(len(cores)) for _npu in range(details.randint(1, most_npus))],
        nodes=len(cores),
        cores=cores,
        threads=threads,
        numbering=details.choice(["adjacent", "far"]),
        nodes_per_socket=details.randint(1, 4),
        family=details.choice(FAMILIES),
    )
    if details.randint(0, 3) == 3:
        for node in topology["numa"]:
            node["distances"] = {other: value if value == 10 else details.randint(11, 40) for other, value in node["distances"].items()}
    everything = sorted(cpu_set(topology["cpus"]["online"]))
    if details.randint(0, 9) == 9:
        switch_off(topology, set(details.sample(everything, details.randint(1, 2))[: len(everything) - 1]))
    options = {"min_cpus": details.choice([1, 2, 3, 5]), "smt": details.choice(["cores", "cores", "threads"])}
    if details.randint(0, 4) == 4:
        options["cpus"] = compress(details.sample(everything, details.randint(1, len(everything))))
    if details.randint(0, 4) == 4:
        first = details.choice(everything)
        options["housekeeping"] = details.choice([1, f"{first}-{details.choice([first, everything[-1]])}"])
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


def deliberate(refusal):
    """Return which rule a refusal follows that is no matter of division, '' for another refusal."""
    return next((words for words in DELIBERATE if words in refusal), "")


def compared(topology, options, effort=10.0):
    """Return in words how the plan of a host is worse than the best, '' where it is not, with the remote CPUs above the best.

    Where the published rule gives nothing, the plan's own smallest pool is the least that the best one has: no pool is made smaller only
    because its CPUs are remote.
    """
    seen = look(topology, **options)
    made = attempt(topology, **options)
    if isinstance(made, str) and (why := deliberate(made)):
        return why, 0
    floor = published_floor(topology, options) or (0 if isinstance(made, str) else made["quality"]["smallest"])
    found = best(seen, floor, effort)
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


def worse_than_the_best(machines, effort=10.0):
    """Return what is wrong with the plans of machines by their seeds, with the remote CPUs above the best, and the CPUs of all."""
    worse, cpus, refused = {}, 0, Counter()
    for given in machines:
        topology, options = machine(*given)
        words, count = compared(topology, options, effort)
        cpus += len(cpu_set(topology["cpus"]["online"]))
        if words in DELIBERATE:
            refused[words] += 1
        elif words and given not in [other for _reason, other, _words in NOT_BEST]:
            worse[given] = words, count
    print(f"{worse}; refused by design: {dict(refused)} of {len(machines)}")
    return worse, cpus


@pytest.mark.parametrize("shard", range(SHARDS))
def test_small_machines_have_the_best_plan(shard):
    worse, _cpus = worse_than_the_best([(seed, 16, 4) for seed in range(shard, SMALL, SHARDS)])
    assert worse == {}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_large_machines_are_near_the_best_plan(shard):
    worse, cpus = worse_than_the_best([(10_000 + seed, 48, 12) for seed in range(shard, LARGE, SHARDS)], EFFORT)
    gap = sum(count for _words, count in worse.values())
    print(f"gap: {gap} of {cpus} CPUs")
    assert gap <= 0.02 * cpus, worse


@pytest.mark.parametrize("shard", range(SHARDS))
def test_plans_are_called_optimal_if_none_is_better(shard):
    """All goals count: the smallest pool, remote CPUs, idle CPUs near the cards, evenness."""
    told, wrong = Counter(), {}
    machines = [(seed, 16, 4) for seed in range(shard, CLAIMS[0], SHARDS)]
    machines += [(20_000 + seed, 48, 12) for seed in range(shard, CLAIMS[1], SHARDS)]
    for given in machines:
        topology, options = machine(*given)
        made = attempt(topology, **options)
        if isinstance(made, str):
            told["refused"] += 1
            continue
        floor = published_floor(topology, options) or made["quality"]["smallest"]
        seen, pools = look(topology, **options), {entry["slice"]: cpu_set(entry["pool"]) for entry in made["npus"]}
        has = reached(seen, pools, floor)
        assert (has.idle, has.uneven) == (len(cpu_set(made["quality"]["idle_near"])), made["quality"]["evenness"]), given
        found = better(seen, has, floor, EFFORT)
        told[f"{made['quality']['optimal']}, a better one exists: {found}"] += 1
        if found is made["quality"]["optimal"]:
            wrong[given] = has, made["quality"]
    print(f"optimal: {dict(told)}")
    assert wrong == {}


def test_npus_of_a_node_without_cpus_share_the_nearest_evenly():
    """The fewest remote CPUs would leave such an NPU the smallest pool that is allowed, next to one of three times the size."""
    topology, options = host([0, 1], nodes=2, cores=[8, 0]), {"min_cpus": 2, "smt": "cores"}
    assert best(look(topology, **options), 0).cost == 24
    assert compared(topology, options) == ("", 0)
    assert [entry["pool"] for entry in plan(topology, **options)["npus"]] == ["0-3", "4-7"]


NOT_BEST = [
    (
        "all CPUs are needed, and cores of one and of two threads fit together in one way only, which is not tried",
        (3355, 16, 4),
        "refused: NUMA node 0 has 2 usable CPUs for NPU 1: 0,3. NPU 1 would get 2 where at least 3 are needed",
    ),
    ("cores of one and of two threads, and an NPU without CPUs of its own", (3720, 16, 4), "remote 80 (4 CPUs), 40 is possible"),
]


@pytest.mark.parametrize("given, words", [row[1:] for row in NOT_BEST], ids=[row[0] for row in NOT_BEST])
def test_other_machines_without_the_best_plan(given, words):
    assert compared(*machine(*given))[0].startswith(words)
