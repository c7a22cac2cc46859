# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that the kernel sets apart: a plan and the archive of the host report where that contradicts the pools. Nothing is written."""

from __future__ import annotations

import pytest
import yaml

from tests.integration.conftest import touched

FILES = {
    "proc/cmdline": "root=/dev/sda2 token=5ecret isolcpus=managed_irq,domain,2-3 nohz_full=0-7 irqaffinity=0-1",
    "sys/devices/system/cpu/isolated": "2-3",
    "sys/devices/system/cpu/nohz_full": "0-7",
    "sys/fs/cgroup/system.slice/cpuset.cpus.partition": "root",
    "sys/fs/cgroup/system.slice/cpuset.cpus.effective": "10-11",
}
VARIABLES = {"npu_affinity_housekeeping": "0-1", "npu_affinity_housekeeping_confine_holders": True}
CONTRADICTIONS = (
    "are only partly isolated from the scheduler",
    "nohz_full on the kernel command line includes CPUs 0-1, which are kept for the system",
    "irqaffinity on the kernel command line excludes CPUs",
    "cgroup system.slice is a cpuset partition (root) with CPUs 10-11 of NPU",
)
FITS = "A kernel command line that fits this plan has isolcpus=managed_irq,"


def words(run):
    return " ".join(run.output.split())


@pytest.mark.long  # four playbooks
def test_contradictions_are_shown_by_a_plan_and_from_an_archive(fleet, tmp_path):
    hosts = fleet(server="a2_8x24")
    for path, text in FILES.items():
        file = hosts.tree("server") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    hosts.give({"server": VARIABLES})
    before = hosts.snapshot("server")
    planned = hosts.play("plan")
    assert planned.status == 0, planned.output
    assert [sentence for sentence in CONTRADICTIONS if sentence not in words(planned)] == []
    assert FITS not in words(planned)
    explained = hosts.play("plan", npu_affinity_isolation="explain")
    assert explained.status == 0 and FITS + "2-191:" in words(explained)
    collected = hosts.play("collect", npu_affinity_archives=str(tmp_path / "archives"))
    assert collected.status == 0, collected.output
    assert touched(before, hosts.snapshot("server")) == set()

    hosts.inventory.write_text(yaml.safe_dump({"all": {"hosts": {}}}))
    (hosts.folder / "host_vars/server.yml").unlink()
    inspected = hosts.play("inspect", npu_affinity_archives=str(tmp_path / "archives"), npu_affinity_report=str(tmp_path / "page.html"))
    assert [sentence for sentence in CONTRADICTIONS if sentence not in words(inspected)] == []
    assert "5ecret" not in inspected.output
