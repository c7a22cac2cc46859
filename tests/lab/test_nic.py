# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interrupts: as planned on the kernel, also after a driver load and a reboot, while XPS stays as it is."""

from __future__ import annotations

import pytest

from tests.lab.conftest import changes, drift, success
from tests.lab.kernel import SETTLE
from tests.lab.shapes import NVME, QUEUES

TIMER = "npu-affinity-nic.timer"
NEAR = {"npu_affinity_nic": "near", "npu_affinity_housekeeping": "2", "npu_affinity_min_cpus": 4}
OTHER = {**NEAR, "npu_affinity_housekeeping": "1"}
FUNCTION = (
    "for folder in /sys/bus/pci/devices/*; do "
    'case "$(cat $folder/class) $(cat $folder/numa_node)" in "0x020000 0") basename $folder ;; esac; done'
)
INTERRUPTS = (
    "for irq in $(ls /sys/bus/pci/devices/%s/msi_irqs); do "
    "for queue in $(ls /proc/irq/$irq | grep -E 'put[.][0-9]+$'); do "
    "echo ${queue#*-} $(cat /proc/irq/$irq/smp_affinity_list /proc/irq/$irq/effective_affinity_list); done; done"
)
SENDING = "cd /sys/bus/pci/devices/%s/virtio*/net/*/queues; for queue in tx-*; do echo $queue $(cat $queue/xps_cpus); done 2>/dev/null"
DRIVER = "/sys/bus/pci/drivers/virtio-pci"


def queues(machine, pci):
    """``{queue: (affinity, effective affinity)}`` of a function."""
    lines = [line.split() for line in machine.run(INTERRUPTS % pci).splitlines()]
    return {name: tuple(places) for name, *places in lines}


def affinities(machine, pci):
    return {name: places[0] for name, places in queues(machine, pci).items()}


def sending(machine, pci):
    """``{queue: CPUs that send by it}`` of a function, which has none where the kernel shows none for a single queue."""
    lines = [line.split() for line in machine.run(SENDING % pci).splitlines()]
    masks = {name: int(mask.replace(",", ""), 16) for name, *masks in lines for mask in masks}
    return {name: {cpu for cpu in range(NVME.cpus) if mask >> cpu & 1} for name, mask in masks.items()}


def state(machine, pci):
    return queues(machine, pci), sending(machine, pci)


@pytest.mark.parametrize("shape", [NVME], ids=lambda shape: shape.name)
def test_queues_stay_near_their_function(lab, claims, tmp_path, shape):
    """Machine with a network function on node 0: its queues after binds, a driver load, a reboot, a rollback and an unbind"""
    machine = lab.bound(shape).machine
    pci = machine.run(FUNCTION).strip()
    before, sent = affinities(machine, pci), sending(machine, pci)
    several = range(QUEUES if sent else 1)  # one, where no device with several can be made outside
    claims.equal("queues of the function", sorted(before), [f"{way}.{queue}" for way in ("input", "output") for queue in several])
    claims.equal("exit status of a bind", success(lab.play(machine, "bind", **NEAR)), (0, ""))
    near = {name: (str(int(name[-1]) % 2),) * 2 for name in before}
    wanted = near, sent
    claims.equal("affinity and effective affinity of its queues, and XPS as before", state(machine, pci), wanted)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **NEAR)), (0, []))
    machine.run(f"echo {pci} >{DRIVER}/unbind; echo {pci} >{DRIVER}/bind; {SETTLE}")
    machine.await_idle("npu-affinity-nic@*.service")
    claims.equal("its queues after the driver was bound again", state(machine, pci), wanted)
    machine.reboot()
    machine.await_idle("npu-affinity-nic*.service")
    claims.equal("its queues after a reboot", state(machine, pci), wanted)
    spread = f"for irq in $(ls /sys/bus/pci/devices/{pci}/msi_irqs); do echo 0-11 >/proc/irq/$irq/smp_affinity_list; done"
    machine.run(f"systemctl stop {TIMER}; {spread}")  # on a slow machine its time would come before verify has looked
    status, found = drift(lab, machine, tmp_path, **NEAR)
    claims.true(f"verify ends with 2 and finds the queues: {found}", status == 2 and any(pci in name for name in found.keys() - {TIMER}))
    machine.run(f"systemctl start npu-affinity-nic.service {TIMER}")
    claims.equal("its queues after the unit ran", state(machine, pci), wanted)
    claims.equal("exit status of a bind by other CPUs", success(lab.play(machine, "bind", **OTHER)), (0, ""))
    claims.equal("its queues on the one CPU that is left", affinities(machine, pci), dict.fromkeys(before, "0"))
    claims.equal("exit status of a rollback", success(lab.play(machine, "rollback", npu_affinity_to="-1", **OTHER)), (0, ""))
    claims.equal("its queues after it", state(machine, pci), wanted)
    claims.equal("exit status of an unbind of nic", success(lab.play(machine, "unbind", npu_affinity_features="nic")), (0, ""))
    claims.equal("affinity of its queues", affinities(machine, pci), before)
    claims.equal("files that are left", machine.run("find /etc -name '*affinity-nic*' -o -name nic.json"), "")
