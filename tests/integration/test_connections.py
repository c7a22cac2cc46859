# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose connection is lost in the middle of a run. A stand-in for ssh (``connections/ssh.py``) loses it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.fakes.changes import state, touched

SSH = Path(__file__).parent / "connections/ssh.py"
ALL = {"npu_affinity_batches": ["100%"]}
LOST = "closed by remote host|Broken pipe"  # ssh ends while, or before, it is given the module
STEP = "Apply the plan and read back what the kernel grants"


def connect(hosts, monkeypatch):
    """Reach the hosts of a fleet by the stand-in, and return its folder."""
    lost = hosts.folder / "lost"
    lost.mkdir()
    program = hosts.folder / "ssh"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -IS '{SSH}' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("LOST_CONNECTIONS", str(lost))
    over_ssh = {"ansible_connection": "ssh", "ansible_ssh_executable": str(program), "ansible_ssh_retries": 0, "ansible_pipelining": True}
    hosts.give({host: {**over_ssh, "ansible_ssh_args": "", "ansible_remote_tmp": str(hosts.folder / "tmp")} for host in hosts.hosts})
    return lost


def calls(lost, host):
    return len((lost / f"{host}.calls").read_text())


def forget(lost):
    for file in lost.iterdir():
        file.unlink()


def test_a_host_lost_in_the_middle_of_a_bind_is_named(fleet, monkeypatch):
    hosts = fleet(applying="i310_pro", there="i310_pro")
    lost = connect(hosts, monkeypatch)
    hosts.succeed("plan", "--limit", "there")
    gathering = calls(lost, "there")
    forget(lost)
    (lost / "applying").write_text(f"{gathering + 1} -")
    run = hosts.play("bind", **ALL)
    assert run.status != 0 and run.summary["states"] == {"changed": ["there"], "unreachable": ["applying"]}, run.output
    said = {host: " ".join(run.summary["hosts"][host]["reasons"]) for host in hosts.hosts}
    assert said["applying"].startswith(f"{STEP}: ") and re.search(LOST, said["applying"])
    assert said["applying"].endswith("Run again when it answers, which completes the change")
    assert "playbooks/bind.yml" in run.summary["next"][0]["command"]
    forget(lost)
    again = hosts.succeed("bind", **ALL)
    assert again.summary["states"] == {"changed": ["applying"], "unchanged": ["there"]}, again.output
    forget(lost)
    (lost / "applying").write_text(f"{gathering + 1} -")
    verified = hosts.play("verify")
    assert verified.status != 0, verified.output
    assert verified.summary["states"] == {"as bound": ["there"], "unreachable": ["applying"]}, verified.output
    assert re.search(LOST, " ".join(verified.summary["hosts"]["applying"]["reasons"]))


def test_a_host_lost_in_a_task_of_the_user_is_not_called_changed(fleet, monkeypatch, tmp_path):
    hosts = fleet(gone="i310_pro", there="i310_pro")
    lost = connect(hosts, monkeypatch)
    after = tmp_path / "after.yml"
    after.write_text("- name: Put it back into service\n  ansible.builtin.command:\n    argv: ['true']\n")
    given = {**ALL, "npu_affinity_after_host": str(after)}
    hosts.succeed("bind", "--limit", "there", **given)
    (lost / "gone").write_text(f"{calls(lost, 'there')} -")
    given["npu_affinity_housekeeping"] = "0-1"
    run = hosts.play("bind", **given)
    assert run.status != 0 and run.summary["states"] == {"changed": ["there"], "unreachable": ["gone"]}, run.output
    assert "1 unreachable: gone" in run.output and "the tasks after it did not run" in run.output


def test_the_only_host_lost_in_an_unbind_is_named(fleet, monkeypatch):
    hosts = fleet(alone="i310_pro")
    before = state(hosts.tree("alone"))
    hosts.succeed("bind")
    lost = connect(hosts, monkeypatch)
    (lost / "alone").write_text("1 -")
    run = hosts.play("unbind")
    assert run.status != 0 and run.summary["states"] == {"unreachable": ["alone"]}, run.output
    assert "Run again when it answers" in " ".join(run.summary["hosts"]["alone"]["reasons"])
    forget(lost)
    hosts.succeed("unbind")
    assert touched(before, state(hosts.tree("alone"))) == set()
