# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet, with the playbooks that an operator types."""

import json
import re

import pytest
import yaml

from tests import transcripts
from tests.fakes.small_host import UNITS, slices
from tests.integration.conftest import touched


def interrupts(tree, name):
    """CPUs of every interrupt of that name, by PCI function."""
    found = {}
    text = (tree / "proc/interrupts").read_text()
    names = dict(re.findall(r"^ *(\d+):.* (\S+)$", text, re.MULTILINE))
    for function in sorted((tree / "sys/bus/pci/devices").iterdir()):
        irqs = sorted((function / "msi_irqs").iterdir()) if (function / "msi_irqs").exists() else []
        cpus = [(tree / "proc/irq" / irq.name / "smp_affinity_list").read_text().strip() for irq in irqs if names.get(irq.name) == name]
        if cpus:
            found[function.name] = cpus
    return found


@pytest.mark.headline
def test_the_first_bind_of_an_a2_and_what_one_variable_changes(fleet):
    hosts = fleet(a2="a2_8x24")
    run = hosts.succeed("bind")
    tree = hosts.tree("a2")
    assert slices(tree) == {
        "npu.slice": ("0-191", "0-7"),
        "npu-0.slice": ("144-167", "6-7"),
        "npu-1.slice": ("168-191", "6-7"),
        "npu-2.slice": ("96-119", "4-5"),
        "npu-3.slice": ("120-143", "4-5"),
        "npu-4.slice": ("0-23", "0-1"),
        "npu-5.slice": ("24-47", "0-1"),
        "npu-6.slice": ("48-71", "2-3"),
        "npu-7.slice": ("72-95", "2-3"),
    }
    assert interrupts(tree, "sq_send_trigger_irq")["0000:c1:00.0"] == ["144"]
    assert interrupts(tree, "cq_update_irq")["0000:c1:00.0"] == ["145"] * 16
    assert interrupts(tree, "cq_update_irq")["0000:02:00.0"] == ["25"] * 16
    for path in tree.glob("etc/**/*npu*"):
        if path.is_file() and not path.is_symlink() and path.name != "previous.json":
            assert "Managed by npu.affinity" in path.read_text().splitlines()[0], path
    assert json.loads((tree / "etc/npu-affinity/plan.json").read_text())["strategy"] == "topo_affinity"
    assert (tree / (UNITS[1:] + "multi-user.target.wants/npu-affinity-irq.service")).is_symlink()
    assert (tree / "etc/npu-affinity/previous.json").stat().st_mode & 0o777 == 0o600

    run = hosts.play("bind", npu_affinity_services=[{"unit": "vllm@0.service", "npus": [0]}, {"unit": "tp2.service", "npus": [2, 3]}])
    drop_ins = {f"{UNITS}{unit}.service.d/50-npu-affinity.conf" for unit in ("vllm@0", "tp2")}
    assert run.files("a2") == (drop_ins, set())
    drop_in = (hosts.tree("a2") / UNITS[1:] / "tp2.service.d/50-npu-affinity.conf").read_text()
    assert "Slice=npu.slice\nAllowedCPUs=96-143\nAllowedMemoryNodes=4-5\n" in drop_in
    run = hosts.play("bind", npu_affinity_interval="1h")
    assert run.files("a2") == ({UNITS + "npu-affinity-irq.timer"}, drop_ins)


@pytest.mark.headline
def test_check_mode_is_truthful_at_first_on_reruns_and_changes(fleet):
    hosts = fleet(a2="a2_8x24")
    confined = {"npu_affinity_housekeeping": "1", "npu_affinity_housekeeping_confine_holders": True}
    stages = [{}, {}, confined, {"npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}]}]
    for variables in stages:
        before = hosts.snapshot("a2")
        with hosts.untouched():
            predicted = hosts.succeed("bind", "--check", "--diff", **variables)
        lines = predicted.diff("a2")
        assert len(lines) <= 60 and not any(line.endswith(("import annotations", '"npus": [')) for line in lines)
        done = hosts.succeed("bind", **variables)
        assert predicted.files("a2") == done.files("a2")
        assert predicted.changed("a2") == done.changed("a2")
        written, removed = done.files("a2")
        owned = {path for path in touched(before, hosts.snapshot("a2")) if path.startswith(("/etc/", "/usr/"))}
        records = ("/etc/npu-affinity/previous.json", "/etc/npu-affinity/history/")
        assert {path for path in owned if ".wants/" not in path and not path.startswith(records)} == written | removed


@pytest.mark.headline
def test_the_plan_playbook_shows_a_table_and_touches_nothing(fleet, tmp_path, monkeypatch):
    """And a file of all plans, below a folder that need not be there; a plan that a bind refuses is shown all the same."""
    hosts = fleet(a2="a2_8x24", overlapping="a2_4x48")
    own = {"npu_affinity_metrics_textfile": "/metrics/npu.prom", "npu_affinity_profile": "throughput", "npu_affinity_nic": "off"}
    hosts.give({"overlapping": {"npu_affinity_repair": False}, "a2": own})
    monkeypatch.setenv("PWD", str(tmp_path))
    with hosts.untouched():
        run = hosts.play("plan", npu_affinity_plan_file="some/plans/fleet.json")
    assert {path.name for path in (tmp_path / "some/plans").iterdir()} == {"fleet.json", "fleet.md"}
    assert not run.of("a2", "failed") and "share CPUs" in run.failure("overlapping")
    (lines,) = (entry["result"]["lines"] for entry in run.results if entry["result"].get("step") == "show_plans")
    shown, refused = "\n".join(lines).split("\n\n")
    assert refused.startswith("overlapping:\n")
    assert "pools OVERLAP" in refused and "violation" in refused and "A bind refuses this plan." in refused
    title, *table = shown.splitlines()
    assert title == "a2:" and table[0].split() == ["NPU", "name", "PCI", "NUMA", "pool", "IRQ", "main", "ACL", "release", "memory", "slice"]
    assert table[1].split()[:5] == ["0", "910B3", "0000:c1:00.0", "6", "144-167"]
    assert any(line.startswith("strategy   topo_affinity, auto was requested.") for line in table)
    assert any("npu_affinity_metrics_textfile has no effect here, because" in text for text in run.summary["hosts"]["a2"]["remarks"])
    profile = 'profile throughput. The inventory overrides npu_affinity_nic ("off" instead of "near").'
    assert " ".join(" ".join(table).split()).count(profile) == 1
    assert "cost on a2: smallest pool 24 CPUs, 0 remote CPUs, 0.0 GiB of memory to move, 0 units to restart" in run.output
    assert run.summary["hosts"]["overlapping"]["cost"] is None


@pytest.mark.long
def test_other_products_bind_once_and_a_rerun_touches_nothing(fleet):
    """Those that ``test_unbind.py`` does not bind."""
    hosts = fleet(**{machine: machine for machine in ("a3_640_adjacent", "a2_910b2c_16", "a5", "n310", "n910a")})
    first = hosts.succeed("bind", npu_affinity_batches=["100%"])
    with hosts.untouched():
        second = hosts.succeed("bind", npu_affinity_batches=["100%"])
    assert all(map(first.changed, hosts.hosts))
    assert {host: second.modules(host) for host in hosts.hosts} == dict.fromkeys(hosts.hosts, ["npu.affinity.gather"])


def test_a_host_without_cpusets_gets_service_drop_ins(fleet):
    hosts = fleet(v2="a2_8x24")
    tree = hosts.tree("v2")
    (tree / "sys/fs/cgroup/cgroup.controllers").write_text("cpu io memory pids\n")
    run = hosts.succeed("bind", "-v", npu_affinity_services=[{"unit": "vllm@0.service", "npus": [0]}])
    assert slices(tree) == {} and interrupts(tree, "sq_send_trigger_irq")["0000:c1:00.0"] == ["144"]
    drop_in = (tree / UNITS[1:] / "vllm@0.service.d/50-npu-affinity.conf").read_text()
    assert "CPUAffinity=144-167\nNUMAPolicy=preferred\nNUMAMask=6\n" in drop_in
    output = " ".join(run.output.split())
    assert "systemd ignores AllowedCPUs= on slices" in output and "cgroup v2 without the controller cpuset" in output


DEMO = list(yaml.safe_load((transcripts.REPOSITORY / "tests/simulator/fleet.yml").read_text())["hosts"])


def test_first_bind_shows_what_the_demo_fleet_prints(tmp_path):
    hosts = transcripts.fleet(tmp_path)
    assert transcripts.first_bind(hosts) == transcripts.FIRST_BIND.read_text(), "python -m tests.transcripts --write"
    said = transcripts.transcript(hosts, "bind")
    assert len(said.splitlines()) <= 97
    assert f"{len(DEMO) - 1} changed: " in said and "1 unchanged: a2-01" in said
