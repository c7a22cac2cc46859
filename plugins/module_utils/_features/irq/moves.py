# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why an interrupt, workqueue or thread is not where it should be, from what can be seen. Nothing here looks at a host.

The causes rest on what Linux 6.1 and irqbalance 1.9 were seen to do: a driver that is loaded again has its interrupts, workqueues and
threads on all CPUs of before; irqbalance moves interrupts and nothing else; an interrupt whose only CPU goes offline gets all others, and
keeps them when the CPU is back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._base.cpulist import expand
from ..._base.findings import DRIVER_RELOAD, EDIT, FOUGHT_OVER, IN_PROCESS, IRQBALANCE, OFFLINE_CPU, Cause

FINDER = "bpftrace -e 'kprobe:irq_affinity_proc_write,kprobe:irq_affinity_list_proc_write { printf(\"%s %d\\n\", comm, pid); }'"
"""The command that prints which program moves an interrupt."""


class Seen(NamedTuple):
    """What can be seen of it.

    ``offline``: the plan's CPU for it where that is offline and it should be on another one; ``irqbalance``: a sentence when it runs and
    was not told to leave this NPU alone, or may not know it; ``process``: one when a process of the NPU has been told to move it to where
    it is.
    """

    offline: str = ""
    irqbalance: str = ""
    process: str = ""


def cause_of_move(kind: str, entry: dict[str, Any], everything: bool, online: set[int], seen: Seen) -> Cause:
    """Return the likely cause why an interrupt, workqueue or thread is not where it should be.

    ``entry`` is that of :func:`irq.binding.bind`; ``everything``: whether all that the driver has on this NPU moved; ``online``: the set
    of CPUs.
    """
    if entry["state"] == "fought over":
        return Cause(FOUGHT_OVER, "it %s; bind when that is settled" % entry["text"])
    if seen.offline:
        return Cause(OFFLINE_CPU, "IRQ CPU %s; it should be on another one meanwhile" % seen.offline)
    found = set(expand(entry["before"] or ""))
    if kind == "interrupts" and 2 * len(found) > len(online) > 1 and not found & set(expand(entry["wanted"])):
        return Cause(OFFLINE_CPU, "CPU %s was offline for a while; what the kernel moved off it does not come back" % entry["wanted"])
    if seen.process:
        return Cause(IN_PROCESS, seen.process)
    if everything:
        return Cause(DRIVER_RELOAD, "the driver was loaded again, or the host booted, and nothing has bound it since")
    if kind == "interrupts" and seen.irqbalance:
        return Cause(IRQBALANCE, seen.irqbalance)
    return Cause(
        EDIT, "moved by hand or by another program" + ("; at the next write, %s shows it" % FINDER if kind == "interrupts" else "")
    )
