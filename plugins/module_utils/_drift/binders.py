# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in our units that were told to bind themselves, against what the plan says. Each is a remark: it explains other findings.

SGLang: sgl-project/sglang issues 20077, 39348 and 39552. torch_npu: Ascend/pytorch@9e73e708a ``NPUInterruptAffinity.cpp``.

This module is private to the collection.
"""

from __future__ import annotations

import re
from typing import Sequence

from .._host import Host
from .._processes.tasks import started_with
from .findings import Findings

_BINDERS = (
    (
        re.compile(r"SGLANG_SET_CPU_AFFINITY=(?:1|true|yes)\Z", re.IGNORECASE),
        "SGLang takes cores of the whole host by number, and ends where they are not in its set: start it with SGLANG_SET_CPU_AFFINITY=0",
    ),
    (
        re.compile(r"CPU_AFFINITY_CONF=.*\bbind_irq:1"),
        "torch_npu moves the interrupts of its NPUs and stops irqbalance: take bind_irq out",
    ),
)


def check_binders(findings: Findings, host: Host, unit: str, processes: Sequence[str]) -> None:
    """Say which of the processes of a unit, given by their folders in /proc, bind themselves by a variable that they were started with."""
    pids = [process.rpartition("/")[2] for process in processes]
    environments = [(pid, started_with(host, pid)) for pid in pids]
    for pattern, advice in _BINDERS:
        found = [(pid, word) for pid, words in environments for word in words if pattern.match(word)]
        if found:
            pid, word = found[0]
            who = "process %s (%s) of %s" % (pid, host.read("/proc/%s/comm" % pid) or "ended", unit)
            more = " and %d more" % (len(found) - 1) if len(found) > 1 else ""
            findings.remarks.append("%s%s started with %s: %s" % (who, more, word, advice))
