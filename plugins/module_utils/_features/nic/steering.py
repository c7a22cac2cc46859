# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPS and XPS of network functions whose queues are placed.

RPS, where it is on, hands packets to the CPUs that the queues have; where it is off, the CPU of the interrupt does that work anyway. XPS
lets every CPU send by one queue: the CPU of a queue's interrupt by that queue, and the others in equal parts, neighbours together. Source:
Linux ``Documentation/networking/scaling.rst``, "Suggested Configuration" of both.
"""

from __future__ import annotations

import collections
import re
from typing import Mapping, Sequence

from ..._base.cpulist import compress, from_mask
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import UNBOUND_CPUS
from ..._kernel.nics import RPS, XPS, steered
from ..irq.affinity import Step

_KEY = re.compile(r"\d+ [rx]ps-\d+\Z")


def is_steering(key: str) -> bool:
    """Whether a key of the record is that of RPS or XPS, and not of an interrupt."""
    return _KEY.match(key) is not None


def steps(host: Host, pci: str, near: Sequence[int], interrupts: int) -> list[Step]:
    """Return the steps of a function. ``near``: the CPUs of its queues, that of queue 0 first; ``interrupts``: of how many queues."""
    found = []
    allowed = from_mask(host.read(UNBOUND_CPUS) or "0", UNBOUND_CPUS)
    rps = compress(set(near) & allowed if allowed else near)  # the kernel refuses isolated CPUs
    for queue in steered(host, pci, RPS):
        if queue.read(host):
            found.append(Step(queue, [rps], queue.key))
    present, online = read_list(host, CPU_FOLDER + "/present"), read_list(host, CPU_FOLDER + "/online")
    others = sorted((present or online) - set(near))
    sending = list(steered(host, pci, XPS))
    of_port = collections.Counter(queue.port for queue in sending)
    for queue in sending:
        # Where a port has more queues than interrupts, as with traffic classes, those of each class have all CPUs.
        parts = min(interrupts, of_port[queue.port]) or of_port[queue.port]
        number = queue.queue % parts
        cpus = {cpu for place, cpu in enumerate(near) if place % parts == number or place == number % len(near)}
        cpus.update(others[number * len(others) // parts : (number + 1) * len(others) // parts])
        found.append(Step(queue, [compress(cpus & online if online else cpus)], queue.key))
    return found


def steps_of_record(host: Host, pci: str, recorded: Mapping[str, str]) -> list[Step]:
    """Return the steps of a function that restore what the record has. A queue that is gone took its CPUs along."""
    online = read_list(host, CPU_FOLDER + "/online")
    there = {queue.key: queue for kind in (RPS, XPS) for queue in steered(host, pci, kind)} if any(map(is_steering, recorded)) else {}
    return [Step(queue, [queue.restored(host, recorded[key], online)], key) for key, queue in there.items() if key in recorded]
