# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that move the interrupts of their NPUs themselves. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from ..._base.cpulist import compress, expand
from ..._base.findings import Device
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.processes import started_with
from ..threads import torch_npu
from ..threads.tasks import Process, find, groups_of

if TYPE_CHECKING:
    from ..._base.documents import Plan


def mover(host: Host, plan: Plan) -> Callable[[Device, str], str]:
    """Return a function that says, for a device and the CPUs of its interrupt, which process has put that there; '' where none has.

    torch_npu with ``bind_irq`` takes the two lowest CPUs of a device. The first query searches for processes, also in pods.
    """
    found: list[list[tuple[Process, str, torch_npu.Setting, list[int]]]] = []

    def said(device: Device, cpus: str) -> str:
        if not found:
            found.append(_movers(host, plan))
        for process, word, made, ids in found[0]:
            devices = [Device.of(npu) for npu in process.npus]
            if device not in devices:
                continue
            order = ids if device.id in ids else sorted(entry.id for entry in devices)
            readings = [torch_npu.cpus_of(made, order.index(device.id), len(order), online, release) for release in torch_npu.READINGS]
            for taken in [sorted(reading)[:2] for reading in readings if reading]:
                if set(expand(cpus)) <= set(taken):
                    text = "%s in %s was started with %s, by which torch_npu puts them on CPUs %s; remove bind_irq"
                    return text % (process.title, process.found_by, word, compress(taken))
        return ""

    online = read_list(host, CPU_FOLDER + "/online")
    return said


def _movers(host: Host, plan: Plan) -> list[tuple[Process, str, torch_npu.Setting, list[int]]]:
    """Return the processes of NPUs that move interrupts, with what tells torch_npu to, and the NPUs that they see."""
    told = {}
    for pid in map(int, host.names("/proc", "[0-9]*")):
        environment = started_with(host, pid)
        setting = torch_npu.setting(environment)
        if setting and torch_npu.BIND_IRQ in setting[1].switches:
            told[pid] = (*setting, torch_npu.visible_ids(environment))
    if not told:
        return []
    processes = find(host, plan, groups_of(plan, [{}, {"devices": True}]), pods=True).processes
    return [(process, *told[process.pid]) for process in processes if process.pid in told]
