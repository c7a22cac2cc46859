# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Housekeeping that follows the workloads: what systemd and the kernel give the system while workers start."""

from __future__ import annotations

import time

from tests.lab.conftest import changes, plan_of, success
from tests.lab.kernel import numbers, start
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO

FOLLOW = {"npu_affinity_housekeeping": "follow", "npu_affinity_min_cpus": 4}
SETS = "cat /sys/fs/cgroup/system.slice/cpuset.cpus.effective /sys/fs/cgroup/init.scope/cpuset.cpus.effective"
HOLDS = "import time\ndevice = open('/dev/davinci0', 'rb')\nopen('/run/first', 'w').close()\ntime.sleep(3600)\n"
STATUS = "until npu-affinity status >/run/status || [ $? != 4 ]; do sleep 1; done; cat /run/status"


def has(machine):
    """What both have, or nothing that a test expects."""
    system, init = map(numbers, machine.run(SETS).split())
    return system if system == init else {None}


def reaches(claims, machine, what, wanted, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while has(machine) != wanted and time.monotonic() < deadline:
        time.sleep(1)
    claims.equal(f"CPUs of the system {what}", has(machine), wanted)


def test_the_system_has_idle_pools_until_work_starts(lab, claims):
    """Small machine: two binds, a worker starts, and systemd reloads"""
    machine = lab.fresh(DUO)
    everything = numbers(machine.look()["online"])
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **FOLLOW)), (0, ""))
    plan = plan_of(machine)
    pool = numbers(plan["npus"][0]["pool"])
    claims.equal("CPUs that always stay", len(numbers(plan["housekeeping"])), 4)
    reaches(claims, machine, "after the bind", everything)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **FOLLOW)), (0, []))
    claims.equal("CPUs of the system after it", has(machine), everything)
    claims.true("status names the NPUs whose CPUs are lent", "those of NPU 0-1 while no workload runs there" in machine.run(STATUS))
    start(machine, "first", "npu-0.slice", HOLDS)
    reaches(claims, machine, "once a worker has opened NPU 0", everything - pool)
    claims.equal("exit status of verify", success(lab.play(machine, "verify", **FOLLOW)), (0, ""))
    machine.run("systemctl daemon-reload")
    claims.true("after a reload the pool in use stays free", not has(machine) & pool)
    reaches(claims, machine, "a look later", everything - pool, 2 * PATIENCE)
