# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host is collected, and inspected without its inventory: plan, comparison and page are those that the host itself gives."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.fakes.small_host import MACHINE, VARIABLES, limp
from tests.integration.conftest import touched
from tests.integration.test_report import hosts_of


def told(run, root):
    """What a run says of its hosts, without the folder in which a host lies."""
    return [line.replace(f"{root}/", "/").replace(str(root), "/") for line in run.output.splitlines() if line.startswith("limping: ")]


@pytest.mark.long  # four playbooks
def test_what_is_inspected_is_what_the_host_says(fleet, tmp_path):
    hosts = fleet(limping=MACHINE)
    textfile = {"npu_affinity_metrics_enabled": True, "npu_affinity_metrics_textfile": "/var/lib/npu.prom"}
    hosts.give({"limping": {**VARIABLES, **textfile, "npu_affinity_housekeeping_confine_holders": True}})
    assert hosts.play("bind").status == 0
    limp(hosts.tree("limping"))
    before = hosts.snapshot("limping")
    verified = hosts.play("verify", npu_affinity_reports=str(tmp_path / "here"))
    collected = hosts.play("collect", npu_affinity_archives=str(tmp_path / "archives"))
    assert collected.status == 0 and collected.summary["states"] == {"collected": ["limping"]}
    assert touched(before, hosts.snapshot("limping")) == set()
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "archives").iterdir()] == [("limping.tar.gz", 0o600)]
    (tmp_path / "archives/bad.tar.gz").write_bytes(b"no tar")

    root, pages = hosts.tree("limping"), tmp_path / "page.html"
    hosts.inventory.write_text(yaml.safe_dump({"all": {"hosts": {}}}))
    (hosts.folder / "host_vars/limping.yml").unlink()
    files = [str(pages), str(tmp_path / "fleet.csv"), str(tmp_path / "fleet.json")]
    found = {"npu_affinity_archives": str(tmp_path / "archives"), "npu_affinity_report": files}
    found["npu_affinity_report_runs"] = [str(tmp_path / "here")]
    inspected = hosts.play("inspect", npu_affinity_reports=str(tmp_path / "there"), **found)
    assert inspected.status == verified.status == 2
    opened = next(entry["result"]["archives"][0]["root"] for entry in inspected.results if entry["action"].endswith("archive_info"))
    drift = [line for line in told(inspected, opened) if "expected" in line]
    assert drift == [line for line in told(verified, root) if "expected" in line] and len(drift) > 7
    here, there = ({**json.loads((tmp_path / place / "limping.json").read_text()), "time": ""} for place in ("here", "there"))
    assert json.loads(json.dumps(there).replace(opened, "")) == json.loads(json.dumps(here).replace(str(root), ""))
    data = json.loads(re.search(r'id="data">(.*?)</script>', pages.read_text(), re.S)[1])
    assert [run["drifted"] for run in data["runs"]] == [1, 1] and data["runs"][0]["causes"] == data["runs"][1]["causes"]
    (_head, first, *_more) = (tmp_path / "fleet.csv").read_text().splitlines()
    assert first.startswith("limping,npu,0,0,0,,910B3,a2,0000:c1:00.0,1,65536,in force,")
    assert [row["pci"] for row in json.loads((tmp_path / "fleet.json").read_text())] == ["0000:c1:00.0", "0000:01:00.0"]
    assert hosts_of(pages)["limping"]["state"] == "drifted"
    assert inspected.summary["states"] == {"drifted": ["limping"]}
    assert "metrics" not in inspected.output, "the settings of every feature are in the archive"
    assert "0    910B3  0000:c1:00.0  1 " in inspected.output
