# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that hold NPUs on simulated hosts: reported, adopted below the root, and given back."""

from __future__ import annotations

import json

import pytest

from tests.fakes.two_cards import two_cards
from tests.integration.conftest import touched
from tests.simulator.generate import merge

WORKERS = {"VLLMWorker": {"npu": 0, "pid": 4000}, "python": {"npu": 1, "pid": 5000}}
PROCESSES = [{**worker, "chip": 0, "comm": name, "memory_mib": 100, "cpus": "0-31"} for name, worker in WORKERS.items()]
MACHINE = merge(two_cards(0, 1), {"npus": {"processes": PROCESSES}})
NOW = {"npu_affinity_adopt": "now"}


def statuses(tree):
    """What the tree says of every thread of the services."""
    return {str(path): path.read_text() for worker in WORKERS.values() for path in tree.glob(f"proc/{worker['pid']}/task/*/status")}


@pytest.mark.parametrize(("cgroup", "key", "back"), [("v2", "AllowedCPUs", "bind"), ("v1", "CPUAffinity", "unbind")])
def test_services_are_adopted_below_the_root_and_given_back(fleet, cgroup, key, back):
    hosts = fleet(a2={**MACHINE, "cgroup": cgroup})
    tree = hosts.tree("a2")
    untouched, threads = hosts.snapshot("a2"), statuses(tree)
    assert "1 changed: a2" in hosts.play("bind").output
    bound = hosts.snapshot("a2")
    reported = hosts.play("verify")
    assert "1 bound, workloads not: a2" in reported.output and reported.status == 0, reported.output
    assert "2 units would be adopted on a2" in hosts.play("bind", "--check", **NOW).output
    assert statuses(tree) == threads

    run = hosts.succeed("bind", **NOW)
    assert "2 units adopted on a2" in run.output, run.output
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    for name, worker in WORKERS.items():
        pool = plan["npus"][worker["npu"]]["pool"]
        drop_in = tree / f"etc/systemd/system/{name}.service.d/50-npu-affinity-adopt.conf"
        assert f"[Service]\n{key}=\n{key}={pool}\n" in drop_in.read_text()
        own = [text for path, text in statuses(tree).items() if f"/{worker['pid']}/" in path]
        assert len(own) == 3 and all(f"Cpus_allowed_list:\t{pool}\n" in text for text in own)
    assert "1 as bound: a2" in hosts.play("verify").output
    again = hosts.play("bind")
    assert "1 unchanged: a2" in again.output and "units adopted" not in again.output, again.output

    hosts.succeed(back, **({"npu_affinity_adopt": "report"} if back == "bind" else {}))
    before = bound if back == "bind" else untouched
    changed = {path for path in touched(before, hosts.snapshot("a2")) if path.startswith(("/etc/systemd", "/usr"))}
    assert (changed, statuses(tree)) == (set(), threads)
