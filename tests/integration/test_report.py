# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages and archives of a fleet: what is read from files without the hosts is what the hosts say themselves."""

import json
import re
import shlex

import pytest
import yaml

from tests.fakes.small_host import MACHINE, VARIABLES, interrupt, limp, write


def hosts_of(page):
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])
    return {host["name"]: {**host, "labels": [data["views"][place]["label"] for place in host["views"]]} for host in data["hosts"]}


@pytest.mark.headline
def test_a_page_of_a_fleet_and_one_from_its_files(fleet, tmp_path):
    hosts = fleet(bound="i310_pro", drifted="i310_pro", unbound="i310_pro", refused="a2_broken")
    services = {"npu_affinity_services": [{"unit": "a.service", "npus": [1]}]}
    hosts.give({"bound": services, "drifted": services})
    hosts.succeed("bind", "--limit", "bound")
    hosts.copy("bound", "drifted")
    write(hosts.tree("drifted"), interrupt(hosts.tree("drifted"), "sq_send_trigger_irq", 0), "30\n")
    inventory = yaml.safe_load(hosts.inventory.read_text())
    inventory["all"]["hosts"]["silent"] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    hosts.inventory.write_text(yaml.safe_dump(inventory))

    page, files = tmp_path / "report.html", tmp_path / "files"
    variables = {"npu_affinity_report": str(page), "npu_affinity_reports": str(files)}
    with hosts.untouched():
        run = hosts.play("report", **variables)
    assert {host: run.changed(host) for host in hosts.hosts} == dict.fromkeys(hosts.hosts, 0)
    found = hosts_of(page)
    states = {"bound": "bound", "drifted": "drifted", "unbound": "not bound", "refused": "refused", "silent": "no answer"}
    assert {name: host["state"] for name, host in found.items()} == states
    assert found["drifted"]["drift"][0]["object"] == "NPU 0 sq_send_trigger_irq"
    assert found["drifted"]["drift"][0]["npu"] == 0
    words = shlex.split(found["drifted"]["bind"])
    assert words[:2] == ["ansible-playbook", "-i"] and words[words.index("--limit") + 1] == "drifted", words
    assert "npu-smi cannot answer" in found["refused"]["why"]
    assert "127.0.0.1" in found["silent"]["why"], "ssh says why, in one of two ways"
    assert f"The page is {page}" in run.output
    assert run.summary["states"] == {
        "as bound": ["bound"],
        "never bound": ["refused", "unbound"],
        "drifted": ["drifted"],
        "unreachable": ["silent"],
    }
    assert [(user["name"], user["pool"]) for user in found["bound"]["users"]] == [("a.service", "24-31,56-63")]
    assert found["bound"]["labels"] == ["plan in force", "kernel"]
    assert sorted(path.name for path in files.glob("*.json")) == ["bound.json", "drifted.json", "refused.json", "unbound.json"]

    measured = tmp_path / "measures" / "bound"
    measured.mkdir(parents=True)
    for number, label in enumerate(("after", "before")):
        memory = [{"pid": 7, "name": "VLLM::Worker", "npus": [0, 1], "wanted": "0", "mib": {"0": 100.0, "1": 9.5}, "remote_mib": 9.5}]
        entry = {
            "host": "bound",
            "label": label,
            "measured_at": f"2026-11-2{number}T00:00:00Z",
            "workloads": [{"title": "NPU 0-1", "memory": memory}],
        }
        (measured / f"{label}.json").write_text(json.dumps(entry))

    page.unlink()
    hosts.inventory.write_text(
        "{all: {hosts: {localhost: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}}}}"
    )
    folders = [str(files)]
    again = hosts.succeed(
        "report",
        npu_affinity_report=str(page),
        npu_affinity_report_from=folders,
        npu_affinity_report_runs=folders,
        npu_affinity_report_strategies=["even_split"],
        npu_affinity_measures=str(measured.parent),
    )
    assert again.modules("localhost") == []
    found = hosts_of(page)
    del states["silent"]
    assert {name: host["state"] for name, host in found.items()} == states
    assert found["bound"]["labels"] == ["plan in force", "kernel", "strategy even_split", "earlier: plan in force"]
    assert [group["label"] for group in found["bound"]["memory"]] == ["after, 2026-11-20T00:00:00Z", "before, 2026-11-21T00:00:00Z"]
    process = {"pid": 7, "name": "VLLM::Worker", "npus": [0, 1], "wanted": "0", "memory": {"0": 100.0, "1": 9.5}}
    assert found["bound"]["memory"][0]["processes"] == [process]
    assert found["unbound"]["memory"] == []


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
    write(hosts.tree("limping"), "/proc/cmdline", "root=/dev/sda2 token=5ecret nohz_full=0-7\n")
    write(hosts.tree("limping"), "/sys/devices/system/cpu/nohz_full", "0-7\n")
    with hosts.untouched():
        verified = hosts.play("verify", npu_affinity_reports=str(tmp_path / "here"))
        collected = hosts.succeed("collect", npu_affinity_archives=str(tmp_path / "archives"))
    assert collected.summary["states"] == {"collected": ["limping"]}
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "archives").iterdir()] == [("limping.json", 0o600)]
    assert "5ecret" not in (tmp_path / "archives/limping.json").read_text()
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
    assert "nohz_full on the kernel command line includes CPUs 0, which are kept for the system" in " ".join(inspected.output.split())
    assert hosts_of(pages)["limping"]["state"] == "drifted"
    assert inspected.summary["states"] == {"drifted": ["limping"]}
    assert "metrics" not in inspected.output, "the settings of every feature are in the archive"
    assert "0    910B3  0000:c1:00.0  1 " in inspected.output
