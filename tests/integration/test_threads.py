# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work: threads of workers are placed and released, and services are adopted and given back."""

import json

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from tests.fakes.small_host import THREADED, THREADS, placed, start, two_cards
from tests.integration.conftest import touched
from tests.simulator.generate import merge

TEAM = {
    "npu_affinity_workloads": [
        {"name": "llm", "npus": [2, 3], "units": ["llm.service"], "roles": {"irq": 1}},
        {"name": "decode", "npus": [1], "roles": {"kv": 2}},
    ]
}
UNIT = "etc/systemd/system/npu-affinity-watch.service"


def test_workers_are_placed_watched_and_released(fleet):
    hosts = fleet(a2=THREADED)
    tree = hosts.tree("a2")
    untouched = hosts.snapshot("a2")
    hosts.succeed("bind", **TEAM)
    assert not (tree / UNIT).exists() and not (tree / "etc/npu-affinity/threads.json").exists()
    start(tree, 4000, "/npu.slice/npu-0.slice/docker-3f.scope")
    start(tree, 5000, "/npu.slice/npu-llm.slice/llm.service", device=2)
    start(tree, 5500, "/npu.slice/npu-decode.slice/docker-4a.scope")
    start(tree, 6000, "/system.slice/cron.service")

    predicted = hosts.play("bind", "--check", **THREADS, **TEAM)
    assert (predicted.status, placed(tree, 4000)) == (0, ("0-31",) * 4), predicted.output
    hosts.succeed("bind", **THREADS, **TEAM)
    plan = {npu["id"]: npu for npu in json.loads((tree / "etc/npu-affinity/plan.json").read_text())["npus"]}
    assert [[len(expand(npu.get(role, ""))) for role in ("irq", "main", "kv", "acl", "release")] for npu in plan.values()] == [
        [2, 4, 0, 1, 1],
        [2, 2, 2, 1, 1],
        [1, 5, 0, 1, 1],
        [1, 5, 0, 1, 1],
    ]
    for pid, npu in ((4000, plan[0]), (5000, plan[2]), (5500, plan[1])):
        assert placed(tree, pid) == (npu["main"], npu["acl"], npu["release"], npu.get("kv", npu["main"]))
    assert placed(tree, 6000) == ("0-31",) * 4
    assert (tree / "etc/systemd/system/multi-user.target.wants/npu-affinity-watch.service").is_symlink()
    assert "-m npu_affinity watch" in (tree / UNIT).read_text()
    assert json.loads((tree / "etc/npu-affinity/threads.json").read_text())["processes"] == [
        {"npus": []},
        {"npus": [2, 3], "slice": "npu-llm.slice"},
        {"npus": [2, 3], "unit": "llm.service"},
        {"npus": [1], "slice": "npu-decode.slice"},
    ]
    hosts.succeed("verify", **THREADS, **TEAM)

    start(tree, 4500, "/npu.slice/npu-0.slice/vllm.scope")
    (tree / UNIT).write_text((tree / UNIT).read_text().replace("RestartSec=30", "RestartSec=60"))
    drifted = hosts.play("verify", **THREADS, **TEAM)
    assert drifted.status != 0
    assert f"acl threads of NPU 0: expected CPUs {plan[0]['acl']}, found CPUs 0-31 of thread 4501 (acl_thread)" in drifted.output
    assert "npu-affinity-watch.service: expected RestartSec=30, found RestartSec=60" in drifted.output
    hosts.succeed("bind", **THREADS, **TEAM)
    assert placed(tree, 4500) == (plan[0]["main"], plan[0]["acl"], plan[0]["release"], plan[0]["main"])

    hosts.succeed("bind", **THREADS, **TEAM, npu_affinity_adopt="always")
    hosts.succeed("bind", **TEAM, npu_affinity_adopt="always")
    assert (tree / UNIT).exists() and not (tree / "etc/npu-affinity/threads.json").exists()
    hosts.succeed("bind", **TEAM, npu_affinity_adopt="now")
    assert not (tree / UNIT).exists() and not (tree / "etc/npu-affinity/adopt.json").exists()
    hosts.succeed("unbind")
    assert {placed(tree, pid) for pid in (4000, 4500, 5000, 5500)} == {("0-31",) * 4}
    after = {path for path in touched(untouched, hosts.snapshot("a2")) if path.startswith(("/etc", "/usr"))}
    assert after == set()


def test_on_it_costs_no_further_module_execution(fleet):
    hosts = fleet(a2=THREADED)
    off, on = (hosts.play("bind", "--check", **variables) for variables in ({}, THREADS))
    assert (off.status, on.status) == (0, 0), off.output + on.output
    ours = [[action for action in run.modules("a2") if action.startswith("npu.affinity.")] for run in (off, on)]
    assert ours[1] == ours[0]


WORKERS = {"VLLMWorker": {"npu": 0, "pid": 4000}, "python": {"npu": 1, "pid": 5000}}
PROCESSES = [{**worker, "chip": 0, "comm": name, "memory_mib": 100, "cpus": "0-31"} for name, worker in WORKERS.items()]
WITH_SERVICES = merge(two_cards(0, 1), {"npus": {"processes": PROCESSES}})
NOW, ALL_AT_ONCE = {"npu_affinity_adopt": "now"}, {"npu_affinity_batches": ["100%"]}


def statuses(tree):
    """What the tree says of every thread of the services."""
    return {str(path): path.read_text() for worker in WORKERS.values() for path in tree.glob(f"proc/{worker['pid']}/task/*/status")}


KEYS = {"v2": "AllowedCPUs", "v1": "CPUAffinity"}


def test_services_are_adopted_below_the_root_and_given_back(fleet):
    hosts = fleet(**{cgroup: {**WITH_SERVICES, "cgroup": cgroup} for cgroup in KEYS})
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
