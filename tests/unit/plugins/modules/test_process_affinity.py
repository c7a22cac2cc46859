# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a real process of this machine, as Ansible runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
from tests.fakes.workers import Files, RealWorker, allowed, npu, process  # noqa: E402

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs to tell roles apart")


@pytest.fixture
def plan():
    return {"npus": [npu(0, 0, pool=f"{CPUS[0]},{CPUS[1]}", irq="", main=str(CPUS[0]), acl=str(CPUS[1]), release=str(CPUS[1]))]}


@pytest.fixture
def worker():
    with RealWorker("acl_thread", "release_thread") as running:
        yield running


def test_a_check_lists_moves_a_run_makes_them_a_rerun_none(run_module, worker, plan):
    arguments = {"plan": plan, "processes": [{"npus": [0], "pids": [worker.pid]}]}
    before = worker.affinities()
    predicted = run_module("process_affinity", _ansible_check_mode=True, **arguments)
    assert predicted["changed"] and worker.affinities() == before
    done = run_module("process_affinity", **arguments)
    assert [done[key] for key in ("changed", "processes", "diff")] == [predicted[key] for key in ("changed", "processes", "diff")]
    after = worker.affinities()
    assert (after["acl_thread"], after["release_thread"]) == ({CPUS[1]}, {CPUS[1]})
    assert f"{CPUS[0]}" in {group["after"] for group in done["processes"][0]["threads"] if group["role"] == "main"}
    title, line = done["diff"][0]["prepared"].splitlines()
    assert title == "threads:" and f"acl_thread {CPUS[0]}-{CPUS[1]} -> {CPUS[1]}" in line
    again = run_module("process_affinity", **arguments)
    assert not again["changed"] and again["diff"] == []
    (memory,) = done["memory"]
    assert (memory["pid"], memory["wanted"], list(memory["mib"])) == (worker.pid, "0", ["0"])
    assert memory["mib"]["0"] > 1
    released = run_module("process_affinity", state="released", **arguments)
    assert released["changed"] and worker.affinities()["acl_thread"] >= set(CPUS)


def test_names_of_threads_can_be_given(run_module, worker, plan):
    processes = [{"npus": [0], "pids": [worker.pid]}]
    done = run_module("process_affinity", plan=plan, processes=processes, patterns={"leave": ["*_thread"]})
    assert {group["state"] for group in done["processes"][0]["threads"] if group["role"] == "leave"} == {"left"}
    assert worker.affinities()["acl_thread"] >= set(CPUS)


def test_the_plan_in_force_and_its_slices_are_the_default(run_module, tmp_path):
    tree = Files(tmp_path)
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread"], "0-7", granted="0-7")
    process(tree, 200, "/npu.slice/npu-1.slice", ["worker", "acl_thread"], "16-23", granted="16-23")
    refused = run_module("process_affinity", root=tree.root)
    assert refused["msg"] == "there is no /etc/npu-affinity/plan.json: this host was never bound; bind it, or give a plan"
    tree.write({"/etc/npu-affinity/plan.json": json.dumps({"npus": [npu(0, 0), npu(1, 8)]})})
    failed = run_module("process_affinity", root=tree.root)
    assert allowed(tree, 100) == {"worker": "2-5", "acl_thread": "6"}
    assert allowed(tree, 200) == {"worker": "16-23", "acl_thread": "16-23"}
    assert failed["changed"] and failed["failures"][1] == (
        "process 200 (worker) of NPU 1: thread 201 (acl_thread) is refused the CPUs 14 of role acl: it may use CPUs (none), and none of "
        "the pool; start it in the slice of its NPU, or widen its cpuset"
    )
    assert failed["msg"] == "not everything could be placed: " + "; ".join(failed["failures"])


def test_memory_above_the_limit_is_refused_before_any_change(run_module, worker, plan):
    elsewhere = {"npus": [{**plan["npus"][0], "mems": "7"}]}
    arguments = {"plan": elsewhere, "processes": [{"npus": [0], "pids": [worker.pid]}], "memory": "migrate", "memory_limit": 0}
    before = worker.affinities()
    result = run_module("process_affinity", **arguments)
    assert "MiB of memory would move, and npu_affinity_threads_memory_limit is 0 MiB" in result["msg"]
    assert worker.affinities() == before
