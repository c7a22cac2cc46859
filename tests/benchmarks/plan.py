# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long plans and placements take: ``PYTHONPATH=build python -m tests.benchmarks.plan [DIR]``.

The baseline is the same topology written and read as JSON. Plans are also given as a multiple of the division that vLLM-Ascend's workers
compute, by the program of the released package, on the machines of the case files below DIR or on those of this file. For the filter
``place``, hosts are A2 and A3 servers with static kubelets that have given random CPUs and NPUs away: no two are alike.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import pathlib
import statistics
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host, switch_off  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.place import place  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests.benchmarks.frame import head, least, show, timed  # noqa: E402
from tests.compare import packages  # noqa: E402

PLANNED, REPEAT = 10_000, 20
UPSTREAM = "0.23.0"
"""The release of vLLM-Ascend whose program divides machines, too."""
FLEET = 5_000
RUN = 4
"""Containers have got CPUs in runs of so many."""
POLICIES = ("best-effort", "restricted", "single-numa-node")
REQUESTS = (
    {"npus": 2, "cpus": 20, "policy": "single-numa-node"},
    {"npus": 2, "cpus": 60, "policy": "restricted"},
    {"npus": 4, "cpus": 100, "policy": "best-effort"},
    {"npus": 4, "cpus": 40, "policy": "best-effort", "replicas": 64},
    {"npus": 8, "policy": "none", "replicas": 64, "switch": {"version": "2.0", "schema": "large-model-schema"}},
    {"npus": 16, "policy": "none", "replicas": 64, "superpod": {"sp_block": 256, "reserve_nodes": 2}},
)


def a3(numbering, times=1):
    """Return an A3, or one with ``times`` as many nodes, CPUs and NPUs."""
    return host([number // 2 for number in range(16 * times)], nodes=8 * times, cores=40, threads=2, numbering=numbering, family="a3")


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
HOSTS += [(f"A3 times {times}: {640 * times} CPUs, {16 * times} NPUs, kept", a3("adjacent", times), {}) for times in (1, 2, 4, 8)]


def fleet(count):
    """Return hosts that are in use in random places, as texts like a fact cache."""
    chance = Random(7)
    models = (host([6, 6, 4, 4, 0, 0, 2, 2]), a3("adjacent"))
    texts = {}
    for number in range(count):
        model = chance.choice(models)
        online = expand(model["cpus"]["online"])
        left = chance.choice((0.3, 0.7, 0.95))
        shared = [cpu for first in range(0, len(online), RUN) if chance.random() < left for cpu in online[first : first + RUN]]
        kubelet = {"policy": "static", "topology_policy": chance.choice(POLICIES), "default_cpus": compress(shared), "exclusive": {}}
        busy = chance.choice((0.0, 0.0, 0.1, 0.5))
        npus = [{**npu, "busy": chance.random() < busy} for npu in model["npus"]]
        labels = {"switch": f"switch-{number // 32:03}", "position": number % 32, "superpod": number // 48}
        texts[f"host-{number:04}"] = json.dumps({"topology": {**model, "kubelet": kubelet, "npus": npus}, "labels": labels})
    return texts


def machines(shared: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield topologies with the CPUs that may be used, of the case files below a folder, each machine once."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))
    read = importlib.import_module("adaptors.plans").host
    seen = set()
    for case in json.loads((pathlib.Path(shared) / "cases/vllm_ascend_plans.json").read_text())["cases"]:
        topology, cpus = read(case["input"]), str(case["input"]["allowed_cpus"])
        key = json.dumps([topology["numa"], topology["npus"], cpus])
        if key not in seen and topology["npus"][0]["family"] != "a5":
            seen.add(key)
            yield topology, cpus


def beside_upstream(shared: str | None) -> None:
    """Print how many times as long as upstream's division plans take: once, and repeated by every worker of the machine, as it is there."""
    own = [(topology, topology["cpus"]["online"]) for _name, topology, _options in HOSTS if topology["npus"][0]["kind"] == "npu"]
    ratios: dict[str, list[tuple[float, float]]] = {}
    with contextlib.ExitStack() as stack:
        try:
            program = stack.enter_context(packages.vllm_ascend(UPSTREAM))
        except packages.CONNECTION_FAILED as error:
            print(f"no index has vllm-ascend {UPSTREAM}, with which plans are compared: {error}")
            return
        for topology, cpus in machines(shared) if shared else own:
            theirs = functools.partial(packages.division, program, topology, cpus)
            with contextlib.suppress(LookupError, RuntimeError, ValueError):  # what cannot be divided
                published = {entry["id"]: expand(entry["pool"]) for entry in plan(topology, cpus=cpus, repair=False)["npus"]}
                if theirs() != published:
                    sys.exit(f"the published plan is not that of vLLM-Ascend on {topology['npus'][0]['family']}, CPUs {cpus}")
                took = least({"plan": timed(functools.partial(plan, topology, cpus=cpus)), "theirs": timed(theirs)})
                once = took["plan"] / took["theirs"]
                ratios.setdefault(topology["npus"][0]["family"], []).append((once, once / len(published)))
    print(f"\n{'times the division of vLLM-Ascend, median':<100}{'once':>13}{'by each worker':>16}")
    for name, found in [*sorted(ratios.items()), ("all", [ratio for each in ratios.values() for ratio in each])]:
        once, each = map(statistics.median, zip(*found, strict=True))
        print(f"{name + f', {len(found)} machines':<100}{once:>13.1f}{each:>16.2f}")


def main(shared: str | None = None):
    head("plan", "JSON")
    for name, topology, options in HOSTS:
        taken = timed(lambda topology=topology, options=options: plan(topology, **options), REPEAT)
        found = least({"plan": taken, "JSON": timed(lambda topology=topology: json.loads(json.dumps(topology)), REPEAT)})
        show(name, found["plan"], found["JSON"])
    texts = [json.dumps(topology) for topology in (a3("adjacent"), a3("far"))] * (PLANNED // 2)
    topologies = []
    reading = timed(lambda: topologies.extend(map(json.loads, texts)))()
    show(f"{PLANNED} hosts, A3, half of them repaired", timed(lambda: [plan(topology) for topology in topologies])(), reading)
    beside_upstream(shared)
    used = fleet(FLEET)
    hosts = {}
    reading = timed(lambda: hosts.update((name, json.loads(text)) for name, text in used.items()))()
    head(f"place, {FLEET} hosts", f"{sum(map(len, used.values())) / 1e6:.0f} MB of JSON")
    for request in REQUESTS:
        show(
            json.dumps(request), timed(lambda request=request: place(hosts, request))(), reading, f"{place(hosts, request)['fitting']} fit"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
