# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interrupts: the kernel delivers them on a CPU near the function, also after a driver load and a reboot."""

from __future__ import annotations

import time

from tests.lab.conftest import changes, drift, plan_of, success
from tests.lab.kernel import SETTLE, numbers
from tests.lab.machine import PATIENCE
from tests.lab.shapes import NVME

NEAR = {"npu_affinity_nic": "near", "npu_affinity_housekeeping": "1"}
CPUS_OF_NODE = set(range(6))
FUNCTION = (
    "for folder in /sys/bus/pci/devices/*; do "
    'case "$(cat $folder/class) $(cat $folder/numa_node)" in "0x020000 0") basename $folder ;; esac; done'
)
QUEUES = (
    "for irq in $(ls /sys/bus/pci/devices/%s/msi_irqs); do "
    "for queue in $(ls /proc/irq/$irq | grep -E 'put[.][0-9]+$'); do "
    "echo ${queue#*-} $(cat /proc/irq/$irq/smp_affinity_list /proc/irq/$irq/effective_affinity_list); done; done"
)
LINK_UP = """cd /sys/bus/pci/devices/%s/virtio*/net/*
echo 0x1002 >flags
for irq in $(ls ../../../msi_irqs); do echo 0-11 >/proc/irq/$irq/smp_affinity_list; done
echo 0x1003 >flags"""
DRIVER = "/sys/bus/pci/drivers/virtio-pci"


def queues(machine, pci):
    """``{queue: (affinity, effective affinity)}`` of a function."""
    lines = [line.split() for line in machine.run(QUEUES % pci).splitlines()]
    return {name: tuple(places) for name, *places in lines}


def affinities(machine, pci):
    return {name: places[0] for name, places in queues(machine, pci).items()}


def test_queues_stay_near_their_function(lab, claims, tmp_path):
    """Machine with a network function on node 0: its queues after a bind, a driver load, a link up, a reboot and an unbind"""
    machine = lab.bound(NVME).machine
    pci = machine.run(FUNCTION).strip()
    before = affinities(machine, pci)
    claims.equal("queues of the function", sorted(before), ["input.0", "output.0"])
    claims.equal("exit status of a bind", success(lab.play(machine, "bind", **NEAR)), (0, ""))
    cpu = str(min(numbers(plan_of(machine)["housekeeping"]) & CPUS_OF_NODE))
    wanted = dict.fromkeys(before, (cpu, cpu))
    claims.equal("affinity and effective affinity of its queues", queues(machine, pci), wanted)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **NEAR)), (0, []))
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path, **NEAR), (0, {}))
    machine.run(f"echo {pci} >{DRIVER}/unbind; echo {pci} >{DRIVER}/bind; {SETTLE}")
    machine.await_idle("npu-affinity-nic@*.service")
    claims.equal("its queues after the driver was bound again", queues(machine, pci), wanted)
    machine.run(LINK_UP % pci)
    deadline = time.monotonic() + PATIENCE
    while queues(machine, pci) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    claims.equal("its queues after its link came up", queues(machine, pci), wanted)
    machine.reboot()
    machine.await_idle("npu-affinity-nic*.service")
    claims.equal("its queues after a reboot", queues(machine, pci), wanted)
    machine.run(f"for irq in $(ls /sys/bus/pci/devices/{pci}/msi_irqs); do echo 0-11 >/proc/irq/$irq/smp_affinity_list; done")
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path, **NEAR)[0], 2)
    machine.run("systemctl start npu-affinity-nic.service")
    claims.equal("its queues after the unit ran", queues(machine, pci), wanted)
    claims.equal("exit status of an unbind of nic", success(lab.play(machine, "unbind", npu_affinity_features="nic")), (0, ""))
    claims.equal("affinity of its queues", affinities(machine, pci), before)
    claims.equal("files that are left", machine.run("find /etc -name '*affinity-nic*' -o -name nic.json"), "")
