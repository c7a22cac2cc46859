# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements before and after a bind, and of real processes of this machine, with ansible-playbook as an operator runs it."""

import json
import os
import subprocess
import sys

import pytest

from tests import transcripts
from tests.fakes.small_host import THREADED, start
from tests.integration.conftest import CHECKOUT, REPOSITORY
from tests.integration.test_report import hosts_of
from tests.simulator import load


def test_measurements_before_and_after_a_bind_are_side_by_side(fleet, tmp_path):
    hosts = fleet(a2=THREADED)
    tree = hosts.tree("a2")
    start(tree, 4000, "/system.slice/docker-3f.scope", device=0)
    options = {"npu_affinity_measures": str(tmp_path / "measures"), "npu_affinity_measure_seconds": 1}
    with hosts.untouched():
        hosts.succeed("measure", **options)
    hosts.succeed("bind")
    (tree / "proc/4000/cgroup").write_text("0::/npu.slice/npu-0.slice/docker-3f.scope\n")
    second = hosts.succeed("measure", **options)
    before, after = (json.loads((tmp_path / f"measures/a2/{label}.json").read_text()) for label in ("before", "after"))
    assert (before["label"], after["label"], after["host"]) == ("before", "after", "a2")
    found = [side["workloads"][0]["processes"] for side in (before, after)]
    assert found[0] == [{"pid": 4000, "name": "VLLM::Worker", "found_by": "an open device"}]
    assert found[1] == [{"pid": 4000, "name": "VLLM::Worker", "found_by": "npu-0.slice"}]
    assert after["workloads"][0]["metrics"]["interrupts"]["value"] == 0.0
    assert "NPU 0, pool" in second.output and "before 1 process, 0 threads; after 1 process, 0 threads" in second.output
    assert "involuntary context switches per s" in second.output and "missing (1)" in second.output
    (tmp_path / "measures/a2/taken.json").mkdir()
    lost = hosts.play("measure", **options, npu_affinity_measure_label="taken")
    assert lost.status == 2 and "involuntary context switches per s" in lost.output, lost.output
    assert "a2/taken.json cannot be written on the controller: it is not a file" in lost.output
    outside = hosts.play("measure", **options, npu_affinity_measure_label="../outside")
    assert outside.status and "npu_affinity_measure_label: expected a name" in outside.output, outside.output
    earlier = tmp_path / "measures/a2/before.json"
    earlier.write_text('{"workloads": []}')
    unreadable = hosts.play("measure", **options)
    assert unreadable.status and f"{earlier} cannot be read as a measurement (KeyError: 'seconds'); remove it" in unreadable.failure("a2")


@pytest.mark.headline
def test_report_shows_memory_of_gpu_workers_by_numa_node(tmp_path):
    hosts = transcripts.fleet(tmp_path, "gpu-01")
    page = tmp_path / "report.html"
    options = {"npu_affinity_measures": str(tmp_path / "measures"), "npu_affinity_report": str(page)}
    measured = hosts.succeed("measure", **options, npu_affinity_measure_seconds=1)
    text = " ".join(measured.output.split())
    assert "memory of process 61004 (VLLM::Worker_TP) in MiB by NUMA node 0: 7056, 1: 47358; belongs on 1" in text
    hosts.succeed("report", **options)
    (group,) = hosts_of(page)["gpu-01"]["memory"]
    assert {(*process["npus"], process["wanted"]): process["memory"] for process in group["processes"]} == {
        (0, "0"): {"0": 46751, "1": 7225},
        (1, "0"): {"0": 38909, "1": 15949},
        (2, "0"): {"0": 51173, "1": 3304},
        (4, "1"): {"0": 7056, "1": 47358},
        (5, "1"): {"0": 14313, "1": 39989},
    }


def test_the_demo_refuses_a_machine_where_it_would_show_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 5})
    monkeypatch.setattr(sys, "argv", ["load", str(tmp_path / "measures")])
    with pytest.raises(SystemExit, match=r"needs 4 CPUs, and this process has 3 \(0-1,5\)"):
        load.main()
    assert not (tmp_path / "measures").exists()


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < load.FEWEST, reason="needs CPUs for workers and for their neighbours")
def test_the_demo_shows_processes_before_and_after_placement(tmp_path):
    command = [sys.executable, "-m", "tests.simulator.load", str(tmp_path / "measures")]
    run = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **CHECKOUT}, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    before, after = (json.loads((tmp_path / f"measures/this-machine/{label}.json").read_text()) for label in ("before", "after"))
    used = [side["workloads"][0]["metrics"]["others_share"] for side in (before, after)]
    assert used[1]["value"] < used[0]["value"], "the neighbours left the pool"
    assert [len(side["windows"]) for side in used] == [10, 10]
    table = (REPOSITORY / "docs/measure.md").read_text().partition("before  after   change\n")[2].partition("```")[0]
    labels = [line.split("  ")[1] for line in table.splitlines()]
    assert len(labels) == 7 and [label for label in labels if f"\n  {label} " not in run.stdout] == []
