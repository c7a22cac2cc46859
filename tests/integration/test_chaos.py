# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet whose controller has a bad day: connections are cut, disks are full, Ctrl-C, and two controllers at once.

``CHAOS_HOSTS`` is the number of hosts and ``CHAOS_SEED`` the seed of all random moments.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import CHECKOUT, REPOSITORY
from tests.integration.test_connections import ALL, calls, connect, forget
from tests.integration.test_faults import HISTORY, steps_of, with_faults
from tests.fakes.changes import state, touched

HOSTS = int(os.environ.get("CHAOS_HOSTS", "6"))
SEED = int(os.environ.get("CHAOS_SEED") or random.randrange(1000))
SHARE = 0.3
"""Of the connections that are cut, and of the hosts whose disk is full."""


@pytest.mark.long
def test_the_next_run_completes_what_chaos_left(fleet, monkeypatch):
    names = [f"host{number}" for number in range(HOSTS)]
    hosts = fleet(straight="i310_pro", **dict.fromkeys(names, "i310_pro"))
    before = state(hosts.tree("straight"))
    chaos = Chaos(hosts, names, connect(hosts, monkeypatch))
    print(f"CHAOS_SEED={SEED}")

    for trouble in (chaos.full_disks, chaos.two_controllers, chaos.interrupt):
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
    print(f"{HOSTS} hosts: {dict(chaos.tally)}")


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
    return subprocess.Popen(
        [*command, "-e", json.dumps({**ALL, **variables})],
        cwd=REPOSITORY,
        env={**os.environ, **CHECKOUT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class Chaos:
    """What goes wrong in runs over the hosts ``names``; ``bound`` is the state that a host has after a run without it."""

    def __init__(self, hosts, names, lost):
        self.hosts = hosts
        self.names = names
        self.lost = lost
        self.chance = random.Random(SEED)
        self.tally = collections.Counter()
        started = time.monotonic()
        hosts.succeed("bind", *with_faults(hosts, {"straight": ("", [])}))
        self.seconds, self.calls = time.monotonic() - started, calls(lost, "straight")
        forget(lost)
        self.bound, self.steps = settled(hosts.tree("straight")), steps_of(hosts.tree("straight"))

    def full_disks(self):
        """Bind while connections are cut and some hosts have no room for all files."""
        full = self.chance.sample(self.names, max(1, round(SHARE * HOSTS)))
        steps = {host: ("ENOSPC", [self.chance.randrange(1, self.steps // 3)]) for host in full}
        self.cut([host for host in self.names if host not in full])
        inventory, file, *_limit = with_faults(self.hosts, steps)
        self.ended(self.hosts.play("bind", inventory, file, "--limit", "host*", **ALL))

    def two_controllers(self):
        self.cut(runs=2)
        both = [begin(self.hosts), begin(self.hosts, npu_affinity_interval="1h")]
        assert all("Traceback" not in process.communicate(timeout=600)[0] for process in both)

    def cut(self, hosts=None, runs=1):
        """Let a share of the connections of the next runs be cut, before their commands begin or while they run."""
        for host in self.names if hosts is None else hosts:
            numbers = [call for call in range(1, runs * self.calls + 1) if self.chance.random() < SHARE]
            lines = [f"{call} {self.chance.choice(['-', round(self.chance.uniform(0, 0.5), 3)])}\n" for call in numbers]
            (self.lost / host).write_text("".join(lines))

    def ended(self, run):
        """Assert that the summary of a run names the hosts that were cut, and that all hosts whose run succeeded are bound."""
        cut = sorted(file.stem for file in self.lost.glob("*.lost"))
        states = run.summary["states"]
        failed = [host for name, of in states.items() if name not in ("changed", "unchanged") for host in of]
        assert states.get("unreachable", []) == cut and (run.status != 0) == bool(failed), run.output
        self.settle()
        for host in set(self.names) - set(failed):
            assert touched(settled(self.hosts.tree(host)), self.bound) == set(), host
        self.tally["failed by a full disk"] += len(failed) - len(cut)
        assert run.output.count("No space left on device") >= len(failed) - len(cut) > 0, run.output

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
        self.tally["connections"] += sum(len(file.read_text()) for file in self.lost.glob("*.calls"))
        self.tally["cut"] += sum(len(file.read_text()) for file in self.lost.glob("*.lost"))
        forget(self.lost)


def settled(tree):
    """What a tree holds after a bind, without the history, which has the time."""
    return {path: found for path, found in state(tree).items() if not path.startswith(HISTORY)}


def environment_of(process):
    try:
        return process.environ()
    except psutil.Error:
        return {}
