# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of running processes: what they may use, and giving them other CPUs.

One pass over the threads of a process is not enough, because those that start meanwhile have the CPUs of the thread that starts them. So
passes are repeated until one of them finds nothing to set.
"""

from __future__ import annotations

import errno
from typing import Collection, Dict, Mapping, Set

from ..._base.cpulist import compress, expand
from ..._host.host import GONE, Host
from ..._kernel.interrupts import Thread
from ..._kernel.machine import is_since

Masks = Dict[str, str]
"""CPUs by the id of a thread."""
_PASSES = 10


def are_remembered(host: Host) -> bool:
    """Whether Linux gives threads what they had asked for when their cpuset widens (user_cpus_ptr, :mod:`_kernel.masks`)."""
    return is_since(host, 6, 2)


def masks(host: Host, pid: int) -> Masks:
    """Return the CPUs that each thread of a process may use; none when it has ended."""
    found = {name: Thread.of_process(pid, int(name), name).read(host) for name in host.names("/proc/%d/task" % pid, "[0-9]*")}
    return {name: cpus for name, cpus in found.items() if cpus}


def asked_for(host: Host, pid: int) -> Masks:
    """Return the masks to request from the kernel for each thread to keep its CPUs."""
    return {name: Thread.of_process(pid, int(name), name).to_record(host, cpus) for name, cpus in masks(host, pid).items()}


def confine(host: Host, pid: int, cpus: set[int], former: Collection[Set[int]]) -> None:
    """Keep all threads of a process on some CPUs. One with a mask of its own keeps the part of it that lies there. Raises ``OSError``.

    ``former`` are sets on which the process was kept before, or that were handed down to it: no masks of a thread's own.
    """
    for _pass in range(_PASSES):
        found = {name: set(expand(text)) for name, text in masks(host, pid).items()}
        wrong = {name: own for name, own in found.items() if own - cpus or own in former and own != cpus}
        if not wrong:
            return
        for name, own in wrong.items():
            _write(host, pid, name, compress(cpus if own in former else own & cpus or cpus))


def restore(host: Host, pid: int, recorded: Mapping[str, str], others: str | None = None) -> None:
    """Give the threads of a process the CPUs that they had asked for, and ``others`` to those that have started since."""
    for name in masks(host, pid):
        cpus = recorded.get(name, others)
        if cpus:
            _write(host, pid, name, cpus)


def _write(host: Host, pid: int, name: str, cpus: str) -> None:
    try:
        Thread.of_process(pid, int(name), name).write(host, cpus)
    except OSError as error:
        if error.errno not in GONE | {errno.EINVAL}:  # EINVAL: the cpuset has none of them; what is there is read back
            raise
