# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long plans take. ``PYTHONPATH=build python -m tests.benchmarks.plan [DIR]``, from a checkout with its virtual environment.

Times are those of the CPU. Because they depend on the machine, each is also given as a multiple of writing and reading the same topology
as JSON in the same run, and plans as a multiple of the division that vLLM-Ascend's workers compute, on the machines of the case files
below DIR or on made ones.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time
import timeit
from random import Random

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host, switch_off  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests.benchmarks import upstream  # noqa: E402

FLEET = 10_000
REPEAT, ROUNDS = 20, 7


def a3(numbering):
    return host([number // 2 for number in range(16)], cores=40, threads=2, numbering=numbering, family="a3")


def grown(times):
    """Return an A3 with ``times`` as many nodes, CPUs and NPUs."""
    return host([number // 2 for number in range(16 * times)], nodes=8 * times, cores=40, threads=2, family="a3")


def lost():
    topology = a3("adjacent")
    return {**topology, "npus": topology["npus"][1:], "applied": plan(topology)}


def large(family):
    """Return a host with 32 nodes and SMT4, a fifth of whose CPUs are offline."""
    details = Random(1)
    topology = host([details.randrange(32) for _card in range(32)], nodes=32, cores=20, threads=4, family=family)
    switch_off(topology, set(details.sample(range(2560), 512)))
    return topology


HOSTS = [
    ("A2, 192 CPUs, 8 NPUs, kept", host([6, 4, 6, 4, 0, 2, 0, 2]), {}),
    ("A3, 640 CPUs, 16 NPUs, kept", a3("adjacent"), {}),
    ("A3, 640 CPUs, 16 NPUs, repaired", a3("far"), {}),
    ("A3, 640 CPUs, 16 NPUs, as published", a3("adjacent"), {"repair": False}),
    ("A3, 640 CPUs, 15 NPUs, one lost", lost(), {}),
    ("L40S, 384 CPUs, 8 GPUs", host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu"), {}),
]
HOSTS += [(f"{family}: 32 nodes, 2560 CPUs, SMT4, 20 % offline", large(family), {}) for family in ("a2", "a3", "gpu")]
HOSTS += [(f"A3 times {times}: {640 * times} CPUs, {16 * times} NPUs, kept", grown(times), {}) for times in (1, 2, 4, 8)]


def best(function, number=REPEAT):
    return min(timeit.repeat(function, number=number, repeat=ROUNDS, timer=time.process_time)) / number


def beside_upstream(shared: str | None) -> None:
    """Print how many times as long as upstream's division plans take.

    That is: of parsed input, together with the parsing of its CPU lists, and repeated by every worker of the machine, as it is there.
    """
    ratios: dict[str, list[tuple[float, float, float]]] = {}
    for topology, cpus in upstream.machines(shared):
        npus = [npu["id"] for npu in topology["npus"]]
        given = upstream.parsed(topology, cpus)
        try:
            pools = upstream.divided(given, npus)
            published = plan(topology, cpus=cpus, repair=False)
            plan(topology, cpus=cpus)
        except (LookupError, ValueError):
            continue
        if pools != {entry["id"]: expand(entry["pool"]) for entry in published["npus"]}:
            raise SystemExit(f"the restated division is not the published one on {topology['npus'][0]['family']}, CPUs {cpus}")
        alone = best(lambda given=given, npus=npus: upstream.roles(upstream.divided(given, npus)), 1)
        read = best(lambda topology=topology, cpus=cpus: upstream.parsed(topology, cpus), 1)
        taken = best(lambda topology=topology, cpus=cpus: plan(topology, cpus=cpus), 1)
        ratios.setdefault(topology["npus"][0]["family"], []).append((taken / alone, taken / (alone + read), taken / alone / len(npus)))
    print(f"{'times the division of vLLM-Ascend, median':<48}{'once':>10}{'with reading':>14}{'by each worker':>16}")
    for name, found in [*sorted(ratios.items()), ("all", [ratio for each in ratios.values() for ratio in each])]:
        once, whole, each = (statistics.median(ratio[place] for ratio in found) for place in range(3))
        print(f"{name + f', {len(found)} machines':<48}{once:>10.1f}{whole:>14.1f}{each:>16.2f}")


def main(shared: str | None = None):
    print(f"{'host':<48}{'plan':>10}{'JSON':>10}{'ratio':>8}")
    for name, topology, options in HOSTS:
        plan(topology, **options)
        taken = best(lambda topology=topology, options=options: plan(topology, **options))
        baseline = best(lambda topology=topology: json.loads(json.dumps(topology)))
        print(f"{name:<48}{taken * 1e3:>7.2f} ms{baseline * 1e3:>7.2f} ms{taken / baseline:>8.1f}")
    texts = [json.dumps(topology) for topology in (a3("adjacent"), a3("far"))]
    topologies = [json.loads(texts[number % 2]) for number in range(FLEET)]
    start = time.process_time()
    for topology in topologies:
        plan(topology)
    taken = time.process_time() - start
    print(f"{FLEET} hosts, A3, half of them repaired: {taken:.1f} s, {taken / FLEET * 1e3:.2f} ms each")
    beside_upstream(shared)


if __name__ == "__main__":
    main(*sys.argv[1:2])
