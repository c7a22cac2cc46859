# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host settings: the kernel takes them, they come back at boot, and unbind puts back what was there. Metrics follow what happens."""

from __future__ import annotations

from tests.lab.conftest import changes, success
from tests.lab.kernel import CQ, irqs
from tests.lab.shapes import DUO

FILES = "/proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/vm/swappiness"
OPTIONS = {
    "npu_affinity_tuning": {"governor": "performance", "numa_balancing": "0", "transparent_hugepages": "never", "swappiness": "1"},
    "npu_affinity_metrics_enabled": True,
}
TEXTFILE = "/var/lib/prometheus/node-exporter/npu_affinity.prom"


def values(machine):
    """What the kernel says: numa_balancing, the huge pages' word in brackets, swappiness."""
    balancing, hugepages, swappiness = machine.run(f"cat {FILES}").splitlines()
    return balancing, hugepages.partition("[")[2].partition("]")[0], swappiness


def drift_and_rebinds(machine):
    """What the metrics' own unit writes: causes of drift, and how many interrupts were restored."""
    machine.run("systemctl start npu-affinity-metrics.service")
    lines = [line.rpartition(" ") for line in machine.run(f"grep -v '^#' {TEXTFILE}").splitlines()]
    found = {name: value for name, _blank, value in lines}
    causes = {name.split('"')[1] for name, value in found.items() if name.startswith("npu_affinity_drifted_objects{") and value != "0"}
    return causes, found['npu_affinity_interrupts_rebound_total{trigger="check"}']


def test_settings_hold_until_unbind(lab, claims):
    """Small machine: host settings after a bind, after a reboot, and after unbind; metrics of an interrupt that is moved"""
    machine = lab.bound(DUO).machine
    machine.run(f"mkdir -p $(dirname {TEXTFILE})")
    before = values(machine)
    claims.true(f"numa_balancing, huge pages and swappiness before: {before}", before != ("0", "never", "1"))
    run = lab.play(machine, "bind", **OPTIONS)
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.equal("after it", values(machine), ("0", "never", "1"))
    claims.true("a governor, which an emulated machine does not support, is a warning", "governor" in run.output, run.output)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **OPTIONS)), (0, []))
    causes, put_back = drift_and_rebinds(machine)
    claims.equal("drift in metrics", causes, set())
    machine.run(f"echo 11 >/proc/irq/{irqs(next(iter(machine.look()['functions'].values())), CQ)[0]}/smp_affinity_list")
    claims.equal("drift in metrics after an interrupt was moved", drift_and_rebinds(machine)[0], {"manual change"})
    machine.run("systemctl start npu-affinity-irq.service")
    claims.equal("drift and restored interrupts, in metrics", drift_and_rebinds(machine), (set(), str(int(put_back) + 1)))
    machine.run(f"rm {TEXTFILE}")
    machine.reboot()
    machine.await_idle("npu-affinity-*.service")
    claims.equal("after a reboot", values(machine), ("0", "never", "1"))
    machine.run(f"for second in $(seq 120); do [ -s {TEXTFILE} ] && break; sleep 1; done")
    claims.true("the timer has written metrics after the boot", machine.run(f"grep -x 'npu_affinity_bound 1' {TEXTFILE}"))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("after unbind", values(machine), before)
    claims.equal("files for node exporter", machine.run(f"ls $(dirname {TEXTFILE})"), "")
