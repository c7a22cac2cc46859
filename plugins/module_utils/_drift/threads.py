# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the threads of NPU processes with the CPUs of their roles. Reads only.

This module is private to the collection.
"""

from __future__ import annotations

from .._processes.placing import place
from .findings import CHANGED_CPUSET, EDIT, because

_MOVED = "started since the timer last looked, or the worker places it itself (vLLM-Ascend: enable_cpu_binding=false)"


def check_threads(findings, host, plan, processes, patterns):
    """Compare all threads; an object is what the processes of an NPU have in one role. The rest as :func:`_processes.placing.place` has it.

    Refusals by a cpuset count as drift, too. What is merely worth knowing becomes a remark.
    """
    report = place(host, plan, processes, patterns, check=True)
    objects = {}
    for row in report.processes:
        for entry in row["threads"]:
            if entry["state"] not in ("left", "gone"):
                name = "%s threads of %s" % (entry["role"], row["title"].rpartition(" of ")[2])
                wrong = objects.setdefault((name, row["npus"][0] if len(row["npus"]) == 1 else None), [])
                if entry["state"] != "placed":
                    wrong.append((row, entry))
    for (name, npu), wrong in objects.items():
        if not wrong:
            findings.same("threads", name)
            continue
        row, entry = wrong[0]
        found = "CPUs %s of thread %d (%s) of process %d (%s)" % (entry["before"], entry["tid"], entry["name"], row["pid"], row["name"])
        found += " and %d more" % (len(wrong) - 1) if len(wrong) > 1 else ""
        cause = because(CHANGED_CPUSET, entry["text"]) if entry["state"] == "refused" else because(EDIT, _MOVED)
        findings.differs("threads", name, "CPUs " + entry["wanted"], found, cause, npu)
    findings.remarks.extend(report.warnings)
