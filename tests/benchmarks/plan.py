# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long plans take. ``PYTHONPATH=build python tests/benchmarks/plan.py``, from a checkout with its virtual environment.

Times depend on the machine, so each is also given as a multiple of writing and reading the same topology as JSON in the same run.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import timeit

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host  # noqa: E402

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402

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


HOSTS = [
    ("A2, 192 CPUs, 8 NPUs, kept", host([6, 4, 6, 4, 0, 2, 0, 2]), {}),
    ("A3, 640 CPUs, 16 NPUs, kept", a3("adjacent"), {}),
    ("A3, 640 CPUs, 16 NPUs, repaired", a3("far"), {}),
    ("A3, 640 CPUs, 16 NPUs, as published", a3("adjacent"), {"repair": False}),
    ("A3, 640 CPUs, 15 NPUs, one lost", lost(), {}),
    ("L40S, 384 CPUs, 8 GPUs", host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu"), {}),
]
HOSTS += [(f"A3 times {times}: {640 * times} CPUs, {16 * times} NPUs, kept", grown(times), {}) for times in (1, 2, 4, 8)]


def best(function):
    return min(timeit.repeat(function, number=REPEAT, repeat=ROUNDS)) / REPEAT


def main():
    print(f"{'host':<48}{'plan':>10}{'JSON':>10}{'ratio':>8}")
    for name, topology, options in HOSTS:
        plan(topology, **options)
        taken = best(lambda topology=topology, options=options: plan(topology, **options))
        baseline = best(lambda topology=topology: json.loads(json.dumps(topology)))
        print(f"{name:<48}{taken * 1e3:>7.2f} ms{baseline * 1e3:>7.2f} ms{taken / baseline:>8.1f}")
    texts = [json.dumps(topology) for topology in (a3("adjacent"), a3("far"))]
    topologies = [json.loads(texts[number % 2]) for number in range(FLEET)]
    start = time.perf_counter()
    for topology in topologies:
        plan(topology)
    taken = time.perf_counter() - start
    print(f"{FLEET} hosts, A3, half of them repaired: {taken:.1f} s, {taken / FLEET * 1e3:.2f} ms each")


if __name__ == "__main__":
    main()
