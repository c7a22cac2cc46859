# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the queue interrupts of network functions with their CPUs. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.cpulist import compress, expand
from ..._base.findings import KERNEL, Cause, Value, coded
from ..feature import Comparing
from ..irq.affinities import predict
from ..irq.drift import cause_of_move
from ..irq.irqbalance import freedom
from ..irq.rebinds import Rebinds
from .queues import TITLE, Queues

if TYPE_CHECKING:
    from ..._base.documents import NicLive

_STUCK = Cause(KERNEL, "they have the right list and do not follow it; see effective_affinity_list")


def compare(comparing: Comparing, wanted: NicLive) -> None:
    """Compare the queues of each function, and add what there is to know about them."""
    host, findings, values, free = comparing.host, comparing.findings, Queues(), freedom(comparing.host)
    report = predict(host, values, wanted, Rebinds(host))
    findings.remarks += values.remarks(host, wanted, ()) + coded("NPU_IRQ_FAILED", report.failed if comparing.tolerant else [])
    for row in report.rows:
        steps, title = row.all_steps(), "%s of %s" % (TITLE, row.title)
        fixed = sum(step.state in ("managed", "full") for step in steps)
        elsewhere = [step for step in steps if step.state in ("changed", "stuck", "fought over", "failed")]
        findings.queues[row.pci] = {"near": len(steps) - fixed - len(elsewhere), "elsewhere": len(elsewhere), "fixed": fixed}
        wrong = [step for step in elsewhere if step.state != "failed" or not comparing.tolerant]
        if not wrong:
            findings.same("interrupts", title)
            continue
        groups: dict[str | None, list[int]] = {}
        for step in wrong:
            irqs = groups.setdefault(step.effective or step.before, [])
            irqs += [] if step.target.irq is None else [step.target.irq]
        found = [
            Value("cannot be read") if cpus is None else Value(cpus=cpus, irqs=compress(irqs))
            for cpus, irqs in sorted(groups.items(), key=lambda group: group[0] or "")
        ]
        worst, irqbalance = next((step for step in wrong if step.state == "fought over"), wrong[0]), free(row.pci)
        everything = len(wrong) == len(steps) > 1 and not irqbalance
        cause = cause_of_move("interrupts", worst.entry(), everything, comparing.online, irqbalance=irqbalance)
        expected = compress({cpu for step in wrong for cpu in expand(step.choices[0])})
        findings.differs("interrupts", title, Value(cpus=expected), found, _STUCK if worst.state == "stuck" else cause)
