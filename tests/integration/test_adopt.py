# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that hold NPUs on simulated hosts: reported, adopted below the root, and given back."""

from __future__ import annotations

import json

from tests.fakes.two_cards import two_cards
from tests.integration.conftest import touched
from tests.simulator.generate import merge

WORKERS = {"VLLMWorker": {"npu": 0, "pid": 4000}, "python": {"npu": 1, "pid": 5000}}
PROCESSES = [{**worker, "chip": 0, "comm": name, "memory_mib": 100, "cpus": "0-31"} for name, worker in WORKERS.items()]
MACHINE = merge(two_cards(0, 1), {"npus": {"processes": PROCESSES}})
NOW, ALL_AT_ONCE = {"npu_affinity_adopt": "now"}, {"npu_affinity_batches": ["100%"]}


def statuses(tree):
    """What the tree says of every thread of the services."""
    return {str(path): path.read_text() for worker in WORKERS.values() for path in tree.glob(f"proc/{worker['pid']}/task/*/status")}


KEYS = {"v2": "AllowedCPUs", "v1": "CPUAffinity"}


def test_services_are_adopted_below_the_root_and_given_back(fleet):
    hosts = fleet(**{cgroup: {**MACHINE, "cgroup": cgroup} for cgroup in KEYS})
    trees = {cgroup: hosts.tree(cgroup) for cgroup in KEYS}
    untouched, threads = hosts.snapshot("v1"), {cgroup: statuses(tree) for cgroup, tree in trees.items()}
    assert "2 changed: v1, v2" in hosts.play("bind", **ALL_AT_ONCE).output
    bound = hosts.snapshot("v2")
    reported = hosts.play("verify")
    assert "2 bound, workloads not: v1, v2" in reported.output and reported.status == 0, reported.output
    assert "4 units would be adopted on v1, v2" in hosts.play("bind", "--check", **NOW, **ALL_AT_ONCE).output
    assert {cgroup: statuses(tree) for cgroup, tree in trees.items()} == threads

    run = hosts.succeed("bind", **NOW, **ALL_AT_ONCE)
    assert "4 units adopted on v1, v2" in run.output, run.output
    for cgroup, tree in trees.items():
        plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
        for name, worker in WORKERS.items():
            pool = plan["npus"][worker["npu"]]["pool"]
            drop_in = tree / f"etc/systemd/system/{name}.service.d/50-npu-affinity-adopt.conf"
            assert f"[Service]\n{KEYS[cgroup]}=\n{KEYS[cgroup]}={pool}\n" in drop_in.read_text()
            own = [text for path, text in statuses(tree).items() if f"/{worker['pid']}/" in path]
            assert len(own) == 3 and all(f"Cpus_allowed_list:\t{pool}\n" in text for text in own)
    assert "2 as bound: v1, v2" in hosts.play("verify").output
    again = hosts.play("bind", **ALL_AT_ONCE)
    assert "2 unchanged: v1, v2" in again.output and "units adopted" not in again.output, again.output

    hosts.succeed("bind", "--limit", "v2", npu_affinity_adopt="report")
    hosts.succeed("unbind", "--limit", "v1")
    for cgroup, before in (("v2", bound), ("v1", untouched)):
        changed = {path for path in touched(before, hosts.snapshot(cgroup)) if path.startswith(("/etc/systemd", "/usr"))}
        assert (changed, statuses(trees[cgroup])) == (set(), threads[cgroup]), cgroup
