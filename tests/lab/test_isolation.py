# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that the kernel sets apart: a plan reports where its command line and a cpuset partition contradict the pools."""

from __future__ import annotations

import pytest

from tests.lab.conftest import said, success
from tests.lab.shapes import ISOLATED

CPU = "/sys/devices/system/cpu"
PARTITION = (
    "cd /sys/fs/cgroup && echo +cpuset >cgroup.subtree_control && mkdir lab && echo 10-11 >lab/cpuset.cpus && "
    "echo root >lab/cpuset.cpus.partition && cat lab/cpuset.cpus.partition"
)
SPREAD = """
import os, subprocess, sys, time
for cpus in {1, 2, 3}, {4, 5}:
    os.sched_setaffinity(0, cpus)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _number in range(3)]
    time.sleep(10)
    print(*{open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[36] for process in busy})
    for process in busy:
        process.kill()
"""
"""The CPUs on which three busy processes run that may use CPUs 1-3, and on which three that may use CPUs 4-5."""
OPTIONS = {"npu_affinity_housekeeping": "0,6", "npu_affinity_isolation": "explain"}
TICKLESS = "nohz_full on the kernel command line includes CPUs 6, which are kept for the system"


@pytest.mark.parametrize("shape", [ISOLATED], ids=lambda shape: shape.name)
def test_a_plan_reports_what_the_kernel_sets_apart(lab, claims, shape):
    """Kernel with isolcpus, nohz_full and irqaffinity, and a cpuset partition: what a plan says of them, and the line that would fit"""
    machine = lab.fresh(shape)
    claims.equal("CPUs that the kernel isolates", machine.run(f"cat {CPU}/isolated").strip(), "4-5")
    claims.equal("interrupts start on", machine.run("cat /proc/irq/default_smp_affinity").strip().lstrip("0,"), "3")
    claims.equal("a partition", machine.run(PARTITION).strip(), "root")
    spread, isolated = machine.run("python3 -", stdin=SPREAD).splitlines()
    claims.true(f"busy processes that may use CPUs 1-3 are spread over several: {spread}", len(spread.split()) > 1)
    claims.true(f"those that may use the isolated CPUs 4-5 stay on one: {isolated}", len(isolated.split()) == 1)
    run = lab.play(machine, "plan", **OPTIONS)
    claims.equal("exit status of a plan", success(run), (0, ""))
    text = said(run)
    claims.true("NPU 1 is partly isolated", "Pools of NPU 1 are only partly isolated from the scheduler: CPUs 1-3 are not" in text, text)
    claims.true("interrupts of NPU 0 and 1", "irqaffinity on the kernel command line excludes CPUs 2,7-8, to which" in text, text)
    claims.true("the partition", "cgroup lab is a cpuset partition (root) with CPUs 10-11 of NPU 0" in text, text)
    tickless = machine.run(f"cat {CPU}/nohz_full || true").strip()  # Debian 11's kernel has none
    claims.equal(f"nohz_full, of which the kernel has '{tickless}'", TICKLESS in text, tickless == "4-6")
    claims.true("the command line that fits", "isolcpus=managed_irq,1-5,7-11:" in text and "irqaffinity=0-2,6-8:" in text, text)
    claims.equal("CPUs that the kernel isolates after it", machine.run(f"cat {CPU}/isolated").strip(), "4-5")
