# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is collected, and inspected without its inventory: the reports on it are those of the host itself."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.fakes.small_host import MACHINE, VARIABLES, limp, write
from tests.integration.test_report import hosts_of


def told(run, root):
    """What a run says of its hosts, without the folder in which a host lies."""
    return [line.replace(f"{root}/", "/").replace(str(root), "/") for line in run.output.splitlines() if line.startswith("limping: ")]


@pytest.mark.long  # four playbooks
def test_what_is_inspected_is_what_the_host_says(fleet, tmp_path):
    hosts = fleet(limping=MACHINE)
    textfile = {"npu_affinity_metrics_enabled": True, "npu_affinity_metrics_textfile": "/var/lib/npu.prom"}
    hosts.give({"limping": {**VARIABLES, **textfile, "npu_affinity_housekeeping_confine_holders": True}})
    hosts.succeed("bind")
    limp(hosts.tree("limping"))
    with hosts.untouched():
        verified = hosts.play("verify", npu_affinity_reports=str(tmp_path / "here"))
        collected = hosts.succeed("collect", npu_affinity_archives=str(tmp_path / "archives"))
    assert collected.summary["states"] == {"collected": ["limping"]}
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "archives").iterdir()] == [("limping.json", 0o600)]
    (tmp_path / "archives/bad.json").write_bytes(b"no JSON")

    root, pages = hosts.tree("limping"), tmp_path / "page.html"
    hosts.inventory.write_text(yaml.safe_dump({"all": {"hosts": {}}}))
    (hosts.folder / "host_vars/limping.yml").unlink()
    files = [str(pages), str(tmp_path / "fleet.csv"), str(tmp_path / "fleet.json")]
    found = {"npu_affinity_archives": str(tmp_path / "archives"), "npu_affinity_report": files}
    found["npu_affinity_report_runs"] = [str(tmp_path / "here")]
    inspected = hosts.play("inspect", npu_affinity_reports=str(tmp_path / "there"), **found)
    assert inspected.status == verified.status == 2
    drift = [line for line in told(inspected, root) if "expected" in line]
    assert drift == [line for line in told(verified, root) if "expected" in line] and len(drift) > 7
    here, there = ({**json.loads((tmp_path / place / "limping.json").read_text()), "time": ""} for place in ("here", "there"))
    assert there == json.loads(json.dumps(here).replace(str(root), ""))
    data = json.loads(re.search(r'id="data">(.*?)</script>', pages.read_text(), re.S)[1])
    assert [run["drifted"] for run in data["runs"]] == [1, 1] and data["runs"][0]["causes"] == data["runs"][1]["causes"]
    (_head, first, *_more) = (tmp_path / "fleet.csv").read_text().splitlines()
    assert first.startswith("limping,npu,0,0,0,0,910B3,a2,0000:c1:00.0,1,65536,in force,")
    assert [row["pci"] for row in json.loads((tmp_path / "fleet.json").read_text())] == ["0000:c1:00.0", "0000:01:00.0"]
    assert hosts_of(pages)["limping"]["state"] == "drifted"
    assert inspected.summary["states"] == {"drifted": ["limping"]}
    assert "metrics" not in inspected.output, "the settings of every feature are in the archive"
    assert "0    910B3  0000:c1:00.0  1 " in inspected.output


FILES = {
    "/proc/cmdline": "root=/dev/sda2 token=5ecret isolcpus=managed_irq,domain,2-3 nohz_full=0-7 irqaffinity=0-1",
    "/sys/devices/system/cpu/isolated": "2-3",
    "/sys/devices/system/cpu/nohz_full": "0-7",
    "/sys/fs/cgroup/system.slice/cpuset.cpus.partition": "root",
    "/sys/fs/cgroup/system.slice/cpuset.cpus.effective": "10-11",
}
KEPT = {"npu_affinity_housekeeping": "0-1", "npu_affinity_housekeeping_confine_holders": True}
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
        write(hosts.tree("server"), path, text + "\n")
    hosts.give({"server": KEPT})
    with hosts.untouched():
        planned = hosts.succeed("plan")
        explained = hosts.succeed("plan", npu_affinity_isolation="explain")
        hosts.succeed("collect", npu_affinity_archives=str(tmp_path / "archives"))
    assert [sentence for sentence in CONTRADICTIONS if sentence not in words(planned)] == []
    assert FITS not in words(planned) and FITS + "2-191:" in words(explained)

    hosts.inventory.write_text(yaml.safe_dump({"all": {"hosts": {}}}))
    (hosts.folder / "host_vars/server.yml").unlink()
    inspected = hosts.play("inspect", npu_affinity_archives=str(tmp_path / "archives"), npu_affinity_report=str(tmp_path / "page.html"))
    assert [sentence for sentence in CONTRADICTIONS if sentence not in words(inspected)] == []
    assert "5ecret" not in inspected.output
