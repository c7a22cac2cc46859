# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose connection is lost in the middle of a run, and controllers that have a bad day. A stand-in for ssh loses the connections.

``CHAOS_HOSTS`` is the number of hosts and ``CHAOS_SEED`` the seed of all random moments.
"""

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

from tests.fakes.changes import state, touched
from tests.integration.conftest import CHECKOUT, REPOSITORY
from tests.integration.test_faults import HISTORY

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


@pytest.mark.headline
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


@pytest.mark.headline
def test_the_only_host_lost_in_an_unbind_is_named(fleet, monkeypatch):
    hosts = fleet(alone="i310_pro")
    before = state(hosts.tree("alone"))
    hosts.succeed("bind")
    lost = connect(hosts, monkeypatch)
    (lost / "alone").write_text("2 -")
    run = hosts.play("unbind")
    assert run.status != 0 and run.summary["states"] == {"unreachable": ["alone"]}, run.output
    assert "Run again when it answers" in " ".join(run.summary["hosts"]["alone"]["reasons"])
    forget(lost)
    hosts.succeed("unbind")
    assert touched(before, state(hosts.tree("alone"))) == set()


HOSTS = int(os.environ.get("CHAOS_HOSTS", "6"))
SEED = int(os.environ.get("CHAOS_SEED") or random.randrange(1000))
SHARE = 0.3
"""Of the connections that are cut."""


@pytest.mark.long
def test_the_next_run_completes_what_chaos_left(fleet, monkeypatch):
    names = [f"host{number}" for number in range(HOSTS)]
    hosts = fleet(straight="i310_pro", **dict.fromkeys(names, "i310_pro"))
    before = state(hosts.tree("straight"))
    chaos = Chaos(hosts, names, connect(hosts, monkeypatch))
    print(f"CHAOS_SEED={SEED}")

    for trouble in (chaos.lost_connections, chaos.two_controllers, chaos.interrupt):
        trouble()
        chaos.settle()
        hosts.succeed("bind", **ALL)
        for host in names:
            assert touched(settled(hosts.tree(host)), chaos.bound) == set(), (trouble, host)
        hosts.succeed("unbind", "--limit", ",".join(chaos.chance.sample(names, HOSTS // 2)), **ALL)
        forget(chaos.lost)

    hosts.succeed("bind", **ALL)
    assert list(hosts.play("bind", **ALL).summary["states"]) == ["unchanged"]
    hosts.succeed("unbind", **ALL)
    for host in names:
        assert touched(state(hosts.tree(host)), before) == set(), host


def test_a_controller_with_a_full_disk_says_so(fleet):
    hosts = fleet(alone="i310_pro")
    before = state(hosts.tree("alone"))
    for playbook, judged in (("bind", "refused"), ("verify", "not compared")):
        output, _errors = begin(hosts, playbook, ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"]).communicate(timeout=600)
        assert f"error on alone: {judged}: The controller cannot build the module: File too large." in output, output
    assert touched(state(hosts.tree("alone")), before) == set()
    assert hosts.play("bind").summary["states"] == {"changed": ["alone"]}


def begin(hosts, playbook="bind", under=(), **variables):
    """Begin a playbook over all hosts by the command itself, under another command if given."""
    command = [*under, str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(hosts.inventory), f"playbooks/{playbook}.yml"]
    command += ["-e", json.dumps({**ALL, **variables})]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **CHECKOUT}, start_new_session=True, **streams)


class Chaos:
    """What goes wrong in runs over the hosts ``names``; ``bound`` is the state that a host has after a run without it."""

    def __init__(self, hosts, names, lost):
        self.hosts = hosts
        self.names = names
        self.lost = lost
        self.chance = random.Random(SEED)
        started = time.monotonic()
        hosts.succeed("bind", "--limit", "straight")
        self.seconds, self.calls = time.monotonic() - started, calls(lost, "straight")
        forget(lost)
        self.bound = settled(hosts.tree("straight"))

    def lost_connections(self):
        """Bind while connections are cut: the summary names the hosts whose were."""
        self.cut()
        run = self.hosts.play("bind", "--limit", "host*", **ALL)
        cut = sorted(file.stem for file in self.lost.glob("*.lost"))
        assert run.summary["states"].get("unreachable", []) == cut and (run.status != 0) == bool(cut), run.output

    def two_controllers(self):
        self.cut(runs=2)
        both = [begin(self.hosts), begin(self.hosts, npu_affinity_interval="1h")]
        assert all("Traceback" not in process.communicate(timeout=600)[0] for process in both)

    def cut(self, runs=1):
        """Let a share of the connections of the next runs be cut, before their commands begin or while they run."""
        for host in self.names:
            numbers = [call for call in range(1, runs * self.calls + 1) if self.chance.random() < SHARE]
            lines = [f"{call} {self.chance.choice(['-', round(self.chance.uniform(0, 0.5), 3)])}\n" for call in numbers]
            (self.lost / host).write_text("".join(lines))

    def interrupt(self):
        """Press Ctrl-C in the middle of a run: a while after its first connection."""
        self.cut()
        process = begin(self.hosts)
        while process.poll() is None and not list(self.lost.glob("*.calls")):
            time.sleep(0.05)
        time.sleep(self.chance.uniform(0, 0.3) * self.seconds)
        assert process.poll() is None, process.communicate()[0]
        os.killpg(process.pid, signal.SIGINT)
        output, _errors = process.communicate(timeout=120)
        assert process.returncode != 0, output

    def settle(self):
        """Wait for commands whose connection was lost, which continue for a moment, and cut no more."""
        until = time.monotonic() + 30
        while any(environment_of(process).get("RUNS_FOR") == str(self.lost) for process in psutil.process_iter()):
            assert time.monotonic() < until, "a command whose connection was lost did not end"
            time.sleep(0.05)
        forget(self.lost)


def settled(tree):
    """What a tree holds after a bind, without the history, which has the time."""
    return {path: found for path, found in state(tree).items() if not path.startswith(HISTORY)}


def environment_of(process):
    try:
        return process.environ()
    except psutil.Error:
        return {}
