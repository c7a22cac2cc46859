# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the filter ``place`` takes over a fleet. ``PYTHONPATH=build python -m tests.benchmarks.place``.

Hosts are A2 and A3 servers with static kubelets that have given random CPUs and NPUs away: no two are alike. Times depend on the
machine, so each is also given as a multiple of reading the same topologies from JSON in the same run.
"""

from __future__ import annotations

import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit/plugins/plugin_utils"))

from planner_hosts import host  # noqa: E402

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.place import place  # noqa: E402

FLEET = 5_000
RUN = 4
"""Containers have got CPUs in runs of so many."""
MODELS = (("a2", host([6, 6, 4, 4, 0, 0, 2, 2])), ("a3", host([number // 2 for number in range(16)], cores=40, threads=2, family="a3")))
POLICIES = ("best-effort", "restricted", "single-numa-node")
REQUESTS = (
    {"npus": 2, "cpus": 20, "policy": "single-numa-node"},
    {"npus": 2, "cpus": 60, "policy": "restricted"},
    {"npus": 4, "cpus": 100, "policy": "best-effort"},
    {"npus": 4, "cpus": 40, "policy": "best-effort", "replicas": 64},
    {"npus": 8, "policy": "none", "replicas": 64, "switch": {"version": "2.0", "schema": "large-model-schema"}},
    {"npus": 16, "policy": "none", "replicas": 64, "superpod": {"sp_block": 256, "reserve_nodes": 2}},
)


def fleet(count):
    """Return hosts that are in use in random places, as texts like a fact cache."""
    chance = random.Random(7)
    texts = {}
    for number in range(count):
        _name, model = chance.choice(MODELS)
        online = expand(model["cpus"]["online"])
        left = chance.choice((0.3, 0.7, 0.95))
        shared = [cpu for first in range(0, len(online), RUN) if chance.random() < left for cpu in online[first : first + RUN]]
        kubelet = {"policy": "static", "topology_policy": chance.choice(POLICIES), "default_cpus": compress(shared), "exclusive": {}}
        busy = chance.choice((0.0, 0.0, 0.1, 0.5))
        npus = [{**npu, "busy": chance.random() < busy} for npu in model["npus"]]
        labels = {"switch": f"switch-{number // 32:03}", "position": number % 32, "superpod": number // 48}
        texts[f"host-{number:04}"] = json.dumps({"topology": {**model, "kubelet": kubelet, "npus": npus}, "labels": labels})
    return texts


def main():
    texts = fleet(FLEET)
    started = time.process_time()
    hosts = {name: json.loads(text) for name, text in texts.items()}
    reading = time.process_time() - started
    print(f"{FLEET} hosts, {sum(map(len, texts.values())) / 1e6:.0f} MB of JSON, read in {reading:.2f} s")
    print(f"{'request':<100}{'fit':>6}{'place':>9}{'ratio':>8}")
    for request in REQUESTS:
        started = time.process_time()
        found = place(hosts, request)
        taken = time.process_time() - started
        print(f"{json.dumps(request):<100}{found['fitting']:>6}{taken:>7.2f} s{taken / reading:>8.2f}")


if __name__ == "__main__":
    main()
