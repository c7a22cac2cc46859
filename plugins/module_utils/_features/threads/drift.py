# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the threads of NPU processes with the CPUs of their roles. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._base.findings import Device
from ..._base.findings import CHANGED_CPUSET, EDIT, Cause, Value, coded
from ..comparing import Comparing
from .placing import place
from .tasks import titles_of

if TYPE_CHECKING:
    from ..._base.documents import ThreadsLive

_MOVED = "started since the timer last looked, or the worker places it itself (vLLM-Ascend: enable_cpu_binding=false)"


def compare(comparing: Comparing, wanted: ThreadsLive) -> None:
    """Compare all threads; an object is what the processes of an NPU have in one role.

    Refusals by a cpuset count as drift, too. What is merely worth knowing becomes a remark.
    """
    findings = comparing.findings
    report = place(comparing.host, comparing.plan, wanted["processes"], wanted["patterns"], check=True)
    objects: dict[tuple[str, Device | None], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for process, row in zip(report.found, report.processes):
        device = Device.of(process.npus[0]) if len(process.npus) == 1 else None
        for entry in row["threads"]:
            if entry["state"] not in ("left", "gone"):
                name = "%s threads of %s" % (entry["role"], titles_of(process.npus))
                wrong = objects.setdefault((name, device), [])
                if entry["state"] != "placed":
                    wrong.append((row, entry))
    for (name, device), wrong in objects.items():
        if not wrong:
            findings.same("threads", name)
            continue
        row, entry = wrong[0]
        task = "thread %d (%s) of process %d (%s)" % (entry["tid"], entry["name"], row["pid"], row["name"])
        found = Value(cpus=entry["before"], task=task, more=len(wrong) - 1)
        cause = Cause(CHANGED_CPUSET, entry["text"]) if entry["state"] == "refused" else Cause(EDIT, _MOVED)
        findings.differs("threads", name, Value(cpus=entry["wanted"]), found, cause, device)
    findings.remarks += coded("NPU_THREAD_UNPLACED", report.warnings)
