# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host settings: the kernel takes them, they come back at boot, and unbind puts back what was there."""

from __future__ import annotations

from tests.lab.conftest import changes, success
from tests.lab.shapes import A2

FILES = "/proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/vm/swappiness"
OPTIONS = {
    "npu_affinity_tuning_enabled": True,
    "npu_affinity_governor": "performance",
    "npu_affinity_numa_balancing": "0",
    "npu_affinity_transparent_hugepages": "never",
    "npu_affinity_swappiness": "1",
}


def values(machine):
    """What the kernel says: numa_balancing, the huge pages' word in brackets, swappiness."""
    balancing, hugepages, swappiness = machine.run(f"cat {FILES}").splitlines()
    return balancing, hugepages.partition("[")[2].partition("]")[0], swappiness


def test_settings_hold_until_unbind(lab, claims):
    """A2-like machine: host settings after a bind, after a reboot, and after unbind"""
    machine = lab.bound(A2).machine
    before = values(machine)
    claims.true(f"numa_balancing, huge pages and swappiness before: {before}", before != ("0", "never", "1"))
    run = lab.play(machine, "bind", **OPTIONS)
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.equal("after it", values(machine), ("0", "never", "1"))
    claims.true("a governor, which an emulated machine does not support, is a warning", "governor" in run.output, run.output)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **OPTIONS)), (0, []))
    machine.reboot()
    machine.await_idle("npu-affinity-*.service")
    claims.equal("after a reboot", values(machine), ("0", "never", "1"))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("after unbind", values(machine), before)
