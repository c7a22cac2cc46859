# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes and threads may use, compared with the sets of their unit. Reads only."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..._base.cpulist import expand
from ..._base.findings import CHANGED_CPUSET, OLD_PROCESS, Cause, Value
from ..comparing import Comparing

_ALLOWED = {"Cpus_allowed_list": "cpus", "Mems_allowed_list": "mems"}


def compare_tasks(comparing: Comparing, name: str, tasks: Sequence[str], entry: Mapping[str, Any], word: str = CHANGED_CPUSET) -> None:
    """Compare tasks, by their folders in /proc, with ``{unit, cpus, mems}``, of which they may use a part; ``word`` is the likely cause."""
    host, findings = comparing.host, comparing.findings
    outside = []
    for task in tasks:
        lines = (line.partition(":") for line in (host.read(task + "/status") or "").splitlines())
        found = {_ALLOWED[key]: value.strip() for key, _colon, value in lines if key in _ALLOWED}  # empty for one that has ended
        if any(entry[kind] and not set(expand(found.get(kind, ""))) <= set(expand(entry[kind])) for kind in _ALLOWED.values()):
            outside.append((task, found))
    if not outside:
        if tasks:
            findings.same("processes", name)
        return
    task, found = outside[0]
    title = "%s (%s)" % (task.rpartition("/")[2], host.read(task + "/comm") or "ended")
    remark = "the set of the unit does not reach them"
    if word == OLD_PROCESS:
        remark = "it runs as it was started, or its workers bind themselves (vLLM-Ascend: enable_cpu_binding=false)"
    has = Value(cpus=found.get("cpus") if entry["cpus"] else None, mems=found.get("mems") if entry["mems"] else None)
    has = has._replace(task=title, more=len(outside) - 1)
    expected = Value(cpus=entry["cpus"] or None, mems=entry["mems"] or None)
    findings.differs("processes", name, expected, has, Cause(word, remark), entry["unit"])
