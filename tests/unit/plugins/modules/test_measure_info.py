# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a real process of this machine, as Ansible runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
from tests.fakes.workers import RealWorker, npu  # noqa: E402


def test_a_worker_that_sleeps_is_hardly_disturbed(run_module):
    pool = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    plan = {"npus": [npu(0, 0, pool=pool, irq="", main=pool, acl="", release="")]}
    with RealWorker("acl_thread") as worker:
        result = run_module("measure_info", plan=plan, seconds=1, interval=0.25, processes=[{"npus": [0], "pids": [worker.pid]}])
    (row,) = result["workloads"]
    assert not result["changed"]
    assert (row["processes"][0]["pid"], row["threads"]) == (worker.pid, 2)
    assert row["metrics"]["involuntary_switches"]["value"] < 1000
    assert 0 <= row["metrics"]["others_share"]["value"] <= 100
    assert row["memory"][0]["mib"]
    assert result["measured_at"].endswith("Z") and result["seconds"] >= 1


@pytest.mark.parametrize("option", ["seconds", "interval"])
def test_no_time_is_refused(run_module, option):
    assert run_module("measure_info", **{option: 0})["msg"].partition(";")[0].removesuffix(".0").endswith(f"{option} is 0")


def test_a_host_that_was_never_bound_needs_a_plan(run_module, tmp_path):
    assert "this host was never bound; bind it, or give a plan" in run_module("measure_info", root=str(tmp_path))["msg"]
