# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the queue interrupts of network functions with their CPUs. Reads only."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._features.irq.irqbalance import freedom
from .._features.irq.rebinds import Rebinds
from .._features.nic.feature import NEAR
from .._features.nic.queues import TITLE, bind, functions_of, name, remarks
from .._host.host import Host
from . import causes
from .findings import KERNEL, Cause, Findings, Value

_WRONG = ("changed", "stuck", "fought over")
_FIXED = ("managed", "full")
_STUCK = Cause(KERNEL, "they have the right list and do not follow it; see effective_affinity_list")


def check_nics(findings: Findings, host: Host, wanted: Mapping[str, Any], online: set[int], tolerant: bool = False) -> None:
    """Compare the queues of each function with ``{mode, functions}`` of a desired state, and add what there is to know about them."""
    functions = functions_of(wanted)
    findings.remarks += remarks(host, functions)
    if wanted["mode"] != NEAR:
        return
    free = freedom(host)
    placed = bind(host, functions, check=True, rebinds=Rebinds(host))
    findings.remarks += placed.unchangeable + (placed.failed if tolerant else [])
    for row in placed.rows:
        title = "%s of %s" % (TITLE, name(host, row.pci))
        steps = row.all_steps()
        findings.queues[row.pci] = _counts([step.state for step in steps])
        wrong = [step for step in steps if step.state in _WRONG or step.state == "failed" and not tolerant]
        if not wrong:
            findings.same("interrupts", title)
            continue
        groups: dict[str, list[int]] = {}
        for step in wrong:
            groups.setdefault(step.effective or step.before or "", []).append(step.target.irq or 0)
        found = [Value(cpus=cpus, irqs=compress(irqs)) if cpus else Value("cannot be read") for cpus, irqs in sorted(groups.items())]
        worst = next((step for step in wrong if step.state == "fought over"), wrong[0])
        everything = not free(row.pci) and len(wrong) == len(steps) > 1
        cause = _STUCK if worst.state == "stuck" else causes.of_move("interrupts", worst.entry(), everything, online, "", free(row.pci))
        expected = compress({cpu for step in wrong for cpu in expand(step.choices[0])})
        findings.differs("interrupts", title, Value(cpus=expected), found, cause)


def _counts(states: Sequence[str]) -> dict[str, int]:
    fixed = sum(state in _FIXED for state in states)
    elsewhere = sum(state in (*_WRONG, "failed") for state in states)
    return {"near": len(states) - fixed - elsewhere, "elsewhere": elsewhere, "fixed": fixed}
