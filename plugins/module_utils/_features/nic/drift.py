# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the queue interrupts of network functions with their CPUs. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, Set

from ..._base.cpulist import compress, expand
from ..._base.findings import KERNEL, Cause, Findings, Value, coded
from ..comparing import Comparing
from ..irq.affinities import place
from ..irq.affinity import Step
from ..irq.irqbalance import freedom
from ..irq.moves import Seen, cause_of_move
from ..irq.rebinds import Rebinds
from .queues import TITLE, Queues

if TYPE_CHECKING:
    from ..._base.documents import NicLive

_WRONG = ("changed", "stuck", "fought over")
_FIXED = ("managed", "full")
_STUCK = Cause(KERNEL, "they have the right list and do not follow it; see effective_affinity_list")


def compare(comparing: Comparing, wanted: NicLive) -> None:
    """Compare the queues of each function, and add what there is to know about them."""
    host, findings, values = comparing.host, comparing.findings, Queues(comparing.tolerant)
    free, values.rebinds = freedom(host), Rebinds(host)
    placed = place(host, values, wanted, check=True)
    findings.remarks += values.remarks(host, wanted, ()) + coded("NPU_IRQ_FAILED", placed.failed if comparing.tolerant else [])
    for row in placed.rows:
        groups: dict[str, list[Step]] = {TITLE: []}
        for step in row.all_steps():
            groups.setdefault(step.target.name, []).append(step)
        findings.queues[row.pci] = _counts([step.state for step in groups[TITLE]])
        for what, steps in groups.items():
            wrong = [step for step in steps if step.state in _WRONG or step.state == "failed" and not comparing.tolerant]
            title = "%s of %s" % (what, row.title)
            if wrong:
                everything = len(wrong) == len(steps) > 1
                _differs(findings, title, wrong, everything, comparing.online, free(row.pci) if what == TITLE else "")
            else:
                findings.same("interrupts", title)


def _differs(findings: Findings, title: str, wrong: Sequence[Step], everything: bool, online: Set[int], irqbalance: str) -> None:
    """Note steps of one kind; ``irqbalance``: a sentence where it may have moved them."""
    groups: dict[str | None, list[int]] = {}
    for step in wrong:
        irqs = groups.setdefault(step.effective or step.before, [])
        irqs += [] if step.target.irq is None else [step.target.irq]
    found = [_value(cpus, compress(irqs)) for cpus, irqs in sorted(groups.items(), key=lambda group: group[0] or "")]
    worst = next((step for step in wrong if step.state == "fought over"), wrong[0])
    kind = "threads" if worst.target.irq is None else "interrupts"
    cause = cause_of_move(kind, worst.entry(), everything and not irqbalance, online, Seen(irqbalance=irqbalance))
    expected = compress({cpu for step in wrong for cpu in expand(step.choices[0])})
    findings.differs("interrupts", title, _value(expected), found, _STUCK if worst.state == "stuck" else cause)


def _value(cpus: str | None, irqs: str = "") -> Value:
    """Return what queues have; RPS and XPS without CPUs are off."""
    if cpus is None:
        return Value("cannot be read")
    return Value(cpus=cpus, irqs=irqs) if cpus else Value("off")


def _counts(states: Sequence[str]) -> dict[str, int]:
    fixed = sum(state in _FIXED for state in states)
    elsewhere = sum(state in (*_WRONG, "failed") for state in states)
    return {"near": len(states) - fixed - elsewhere, "elsewhere": elsewhere, "fixed": fixed}
