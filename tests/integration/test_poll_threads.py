# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with Ascend 950s alone: no interrupts to bind, and threads of the kernel that poll for the whole host."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.fakes.changes import state
from tests.fakes.small_host import PLAN, UNITS, said
from tests.simulator.proc import POLL_THREAD_PIDS
from tests.simulator.reboot import reboot

MACHINE = {
    "cpus": {"per_node": 32},
    "nodes": {"count": 2},
    "npus": {
        "family": "a5",
        "name": "Ascend950DT",
        "memory_mib": 98304,
        "cards": [{"npu": 0, "bdf": "0000:11:00.0", "node": 0}, {"npu": 1, "bdf": "0000:91:00.0", "node": 1}],
    },
    "irqbalance": {"installed": True, "active": True, "unit": "debian", "options": ""},
}
EVERYWHERE = ["0-63"] * 2


def places(tree):
    texts = [(tree / f"proc/{pid}/status").read_text() for pid in POLL_THREAD_PIDS]
    return [line.partition(":")[2].strip() for text in texts for line in text.splitlines() if line.startswith("Cpus_allowed_list")]


def start_boot_unit(tree):
    """Run what the installed unit starts at boot and by its timer."""
    unit = (tree / UNITS[1:] / "npu-affinity-irq.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    arguments = line.split()[1:]
    environment = {**os.environ, "PYTHONPATH": str(tree / "usr/local/lib/npu-affinity/npu_affinity.zip"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments, "--root", str(tree)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
def test_poll_threads_are_bound_kept_compared_and_put_back(fleet):
    hosts = fleet(a5=MACHINE)
    tree, before = hosts.tree("a5"), state(hosts.tree("a5"))
    predicted = hosts.play("bind", "--check")
    assert predicted.changed("a5") > 0 and state(tree) == before, predicted.output
    run = hosts.play("bind")
    assert run.status == 0, run.output
    poll = json.loads((tree / PLAN[1:]).read_text())["poll"]
    assert places(tree) == [poll, poll] != EVERYWHERE
    assert predicted.files("a5") == run.files("a5")
    written = {path for path in run.files("a5")[0] if not path.endswith((".slice", ".zip", PLAN, "/npu-affinity"))}
    assert written == {UNITS + "npu-affinity-irq.service", UNITS + "npu-affinity-irq.timer"}, "no udev rule, nothing for irqbalance"
    assert hosts.play("bind").changed("a5") == 0

    reboot(tree)
    assert places(tree) == EVERYWHERE
    drift = said(hosts.play("verify"), "a5")
    assert drift[1].startswith(f"uvb_poll_window: expected CPUs {poll}, found CPUs 0-63; likely driver reload: ")
    assert drift[0].startswith("2 of ")
    assert f"host: thread uvb_poll_window #2 moved from CPUs 0-63 to {poll}" in start_boot_unit(tree)
    assert places(tree) == [poll, poll]

    status = tree / f"proc/{POLL_THREAD_PIDS[1]}/status"
    status.write_text(status.read_text().replace(f"Cpus_allowed_list:\t{poll}", "Cpus_allowed_list:\t7"))
    drift = said(hosts.play("verify"), "a5")
    assert drift[0].startswith("1 of ")
    assert drift[1].startswith(f"uvb_poll_window #2: expected CPUs {poll}, found CPUs 7; likely manual change: moved by hand")
    assert hosts.play("bind").changed("a5") == 1
    assert places(tree) == [poll, poll]

    run = hosts.play("unbind")
    assert run.status == 0, run.output
    after = state(tree)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set()
