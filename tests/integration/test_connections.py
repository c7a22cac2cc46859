# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose connection is lost in the middle of a run. A stand-in for ssh (``connections/ssh.py``) loses it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fakes.changes import state
from tests.integration.conftest import REPOSITORY
from tests.integration.test_faults import HISTORY, differing

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
    hosts = fleet(applying="i310_pro", comparing="i310_pro", there="i310_pro")
    lost = connect(hosts, monkeypatch)
    assert hosts.play("plan", "--limit", "there").status == 0
    gathering = calls(lost, "there")
    forget(lost)
    (lost / "applying").write_text(f"{gathering + 1} -")
    (lost / "comparing").write_text(f"{gathering + 2} -")
    run = hosts.play("bind", **ALL)
    assert run.status != 0 and run.summary["states"] == {"changed": ["there"], "unreachable": ["applying", "comparing"]}, run.output
    said = {host: " ".join(run.summary["hosts"][host]["reasons"]) for host in hosts.hosts}
    assert said["applying"].startswith(f"{STEP}: ") and re.search(LOST, said["applying"])
    assert said["applying"].endswith("Run again when it answers, which completes the change")
    assert said["comparing"].startswith("Compare the host with its state in force") and "The host is changed" in said["comparing"]
    assert "playbooks/bind.yml" in run.summary["next"][0]["command"]
    forget(lost)
    again = hosts.play("bind", **ALL)
    assert again.status == 0 and again.summary["states"] == {"changed": ["applying"], "unchanged": ["comparing", "there"]}, again.output
    forget(lost)
    (lost / "comparing").write_text(f"{gathering + 1} -")
    verified = hosts.play("verify")
    assert verified.status != 0, verified.output
    assert verified.summary["states"] == {"as bound": ["applying", "there"], "unreachable": ["comparing"]}, verified.output
    assert re.search(LOST, " ".join(verified.summary["hosts"]["comparing"]["reasons"]))


def test_a_host_lost_in_a_task_of_the_user_is_not_called_changed(fleet, monkeypatch, tmp_path):
    hosts = fleet(gone="i310_pro", there="i310_pro")
    lost = connect(hosts, monkeypatch)
    after = tmp_path / "after.yml"
    after.write_text("- name: Put it back into service\n  ansible.builtin.command:\n    argv: ['true']\n")
    given = {**ALL, "npu_affinity_after_host": str(after)}
    assert hosts.play("bind", "--limit", "there", **given).status == 0
    (lost / "gone").write_text(f"{calls(lost, 'there')} -")
    run = hosts.play("bind", **given)
    assert run.status != 0 and run.summary["states"] == {"unchanged": ["there"], "unreachable": ["gone"]}, run.output
    assert "1 unreachable: gone" in run.output and "the tasks after it did not run" in run.output


def test_the_only_host_lost_in_an_unbind_is_named(fleet, monkeypatch):
    hosts = fleet(alone="i310_pro")
    before = state(hosts.tree("alone"))
    assert hosts.play("bind").status == 0
    lost = connect(hosts, monkeypatch)
    (lost / "alone").write_text("1 -")
    run = hosts.play("unbind")
    assert run.status != 0 and run.summary["states"] == {"unreachable": ["alone"]}, run.output
    assert "Run again when it answers" in " ".join(run.summary["hosts"]["alone"]["reasons"])
    forget(lost)
    assert hosts.play("unbind").status == 0
    assert differing(before, state(hosts.tree("alone"))) == []


@pytest.mark.long
def test_cuts_and_interrupts_at_random_moments_lose_nothing(fleet, monkeypatch):
    """Connections are lost in two runs, and Ctrl-C ends a third. The next bind completes, and an unbind restores every host."""
    names = [f"host{number}" for number in range(8)]
    hosts = fleet(straight="i310_pro", **dict.fromkeys(names, "i310_pro"))
    before = state(hosts.tree("straight"))
    lost, seed = connect(hosts, monkeypatch), random.randrange(1000)
    started = time.monotonic()
    assert hosts.play("bind", "--limit", "straight").status == 0
    seconds, total = time.monotonic() - started, calls(lost, "straight")
    bound, chance = settled(hosts.tree("straight")), random.Random(seed)
    print(f"random seed {seed}")
    for _run in range(2):
        forget(lost)
        for host in names:
            moment = chance.choice(["-", str(round(chance.uniform(0, 0.5), 3))])
            (lost / host).write_text(f"{chance.randrange(1, total + 1)} {moment}")
        run = hosts.play("bind", "--limit", "host*", **ALL)
        cut = sorted(file.stem for file in lost.glob("*.lost"))
        assert (run.status != 0) == bool(cut) and run.summary["states"].get("unreachable", []) == cut, run.output
        await_commands(lost)
        for host in set(names) - set(cut):
            assert differing(settled(hosts.tree(host)), bound) == [], host
        forget(lost)
        assert hosts.play("unbind", "--limit", ",".join(chance.sample(names, 3)), **ALL).status == 0
    interrupt(hosts, chance.uniform(0.5, 1.5) * seconds)
    await_commands(lost)
    again = hosts.play("bind", **ALL)
    assert again.status == 0, again.output
    for host in names:
        assert differing(settled(hosts.tree(host)), bound) == [], host
    assert list(hosts.play("bind", **ALL).summary["states"]) == ["unchanged"]
    assert hosts.play("unbind", **ALL).status == 0
    for host in names:
        assert differing(state(hosts.tree(host)), before) == [], host


def settled(tree):
    """What a tree holds after a bind, without the history, which has the time."""
    return {path: found for path, found in state(tree).items() if not path.startswith(HISTORY)}


def interrupt(hosts, seconds):
    """Begin a bind of all hosts by the command itself, and press Ctrl-C after a time."""
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(hosts.inventory), "playbooks/bind.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build")}
    process = subprocess.Popen(
        [*command, "-e", json.dumps(ALL)],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    time.sleep(seconds)
    ended = process.poll() is not None
    os.killpg(process.pid, signal.SIGINT)
    output, _errors = process.communicate(timeout=120)
    assert not ended and process.returncode != 0, output.decode()


def await_commands(lost):
    """Wait for commands whose connection was lost: they continue for a moment."""
    until = time.monotonic() + 30
    while any(environment_of(process).get("RUNS_FOR") == str(lost) for process in psutil.process_iter()):
        assert time.monotonic() < until, "a command whose connection was lost did not end"
        time.sleep(0.05)


def environment_of(process):
    try:
        return process.environ()
    except psutil.Error:
        return {}
