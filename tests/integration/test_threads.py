# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers whose threads are placed from outside: bind, verify and unbind of one host."""

from __future__ import annotations

import json

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from tests.fakes.thread_host import MACHINE, THREADS, placed, start
from tests.integration.conftest import touched

TEAM = {
    "npu_affinity_workloads": [
        {"name": "llm", "npus": [2, 3], "units": ["llm.service"], "roles": {"irq": 1}},
        {"name": "decode", "npus": [1], "roles": {"kv": 2}},
    ]
}
UNIT = "etc/systemd/system/npu-affinity-watch.service"


def test_workers_are_placed_watched_and_released(fleet):
    hosts = fleet(a2=MACHINE)
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
    hosts = fleet(a2=MACHINE)
    off, on = (hosts.play("bind", "--check", **variables) for variables in ({}, THREADS))
    assert (off.status, on.status) == (0, 0), off.output + on.output
    ours = [[action for action in run.modules("a2") if action.startswith("npu.affinity.")] for run in (off, on)]
    assert ours[1] == ours[0]
    refused = hosts.play("bind", "--check", **THREADS, npu_affinity_bound_by="workers")
    assert refused.status != 0
    assert "with npu_affinity_bound_by=workers the workers do it themselves" in refused.failure("a2")
    assert refused.modules("a2") == ["npu.affinity.gather"]


def test_memory_follows_the_threads_within_its_limit(fleet):
    hosts = fleet(a2=MACHINE)
    tree = hosts.tree("a2")
    start(tree, 4000, "/npu.slice/npu-0.slice/vllm.service")
    maps = tree / "proc/4000/numa_maps"
    maps.write_text("7f00 default anon=262144 dirty=262144 N0=131072 N1=131072 kernelpagesize_kB=4\n")
    tool = tree / "usr/bin/migratepages"
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(f"#!/bin/sh\nsed -i 's/N0=131072 N1=131072/N0=262144/' {maps}\n")
    tool.chmod(0o755)
    migrate = {**THREADS, "npu_affinity_threads_memory_limit": 4096, "npu_affinity_memory": "strict"}

    refused = hosts.play("bind", **{**migrate, "npu_affinity_threads_memory_limit": 100})
    assert refused.status != 0
    assert "512 MiB of memory would move, and npu_affinity_threads_memory_limit is 100 MiB" in refused.failure("a2")
    assert placed(tree, 4000) == ("0-31",) * 4 and "N1=" in maps.read_text()
    bound = hosts.succeed("bind", **migrate)
    assert "N1=" not in maps.read_text() and placed(tree, 4000) != ("0-31",) * 4
    (result,) = [entry["result"]["threads"] for entry in bound.of("a2", "ok") if entry["action"].endswith("host_files")]
    assert result["migration"]["moved_mib"] == 512
    assert hosts.play("bind", **migrate).changed("a2") == 0
