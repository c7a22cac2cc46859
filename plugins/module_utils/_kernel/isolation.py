# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that the kernel command line or a cpuset partition sets apart. Reads only.

Sources: Linux ``Documentation/admin-guide/kernel-parameters.txt`` and ``Documentation/admin-guide/cgroup-v2.rst``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .._base.cpulist import compress, expand
from .._host.host import Host
from .cpus import CPU_FOLDER
from .machine import CGROUPS

if TYPE_CHECKING:
    from typing import Iterator

    from .._base.documents import Isolation, Partition

COMMAND_LINE = "/proc/cmdline"
PARAMETER = re.compile(r"(?<!\S)(isolcpus|nohz_full|rcu_nocbs|irqaffinity)=(\S+)")
"""A parameter of the command line that sets CPUs apart, and its value."""
_FLAGS = ("domain", "managed_irq", "nohz")
_NAMED = re.compile(r"\b(?:all|N)\b")
_UNITS = (".slice", ".scope", ".service")
_PARENTS = ("npu.slice", "gpu.slice")
_MOST_GROUPS = 64
_MOST_LETTERS = 4096
"""The groups that are looked at, and the letters of a value. A kernel command line has at most 4,096."""


def isolation(host: Host) -> Isolation:
    """Return what sets CPUs apart; without it the result is empty, and each key is there only where something does.

    ``flags`` are those of ``isolcpus``. What it isolates from the scheduler is ``cpus.isolated`` of the topology, as the kernel has it:
    without the flag domain it is nothing. Raises ``ValueError`` for a value that names no CPUs.
    """
    found: Isolation = {}
    given = dict(PARAMETER.findall((host.read(COMMAND_LINE) or "")[:_MOST_LETTERS]))
    highest = _highest(host)
    if "isolcpus" in given:
        words = given["isolcpus"].split(",")
        found["flags"] = [flag for flag in _FLAGS if flag in words] or ["domain"]
        found["isolcpus"] = _cpus("isolcpus", ",".join(word for word in words if word not in _FLAGS), highest)
    if "rcu_nocbs" in given:
        found["rcu_nocbs"] = _cpus("rcu_nocbs", given["rcu_nocbs"], highest)
    if "irqaffinity" in given:
        found["irqaffinity"] = _cpus("irqaffinity", given["irqaffinity"], highest)
    tickless = host.read(CPU_FOLDER + "/nohz_full")
    if tickless is None and not host.live:  # a record may lack the file; a kernel without it ignores the parameter
        tickless = given.get("nohz_full")
    tickless = (tickless or "").strip().replace("(null)", "")
    if tickless:
        found["nohz_full"] = _cpus("nohz_full", tickless, highest)
    partitions = list(_partitions(host))
    if partitions:
        found["partitions"] = partitions
    return found


def _highest(host: Host) -> int:
    """Return the CPU that ``N`` stands for."""
    return max(expand(host.read(CPU_FOLDER + "/possible") or host.read(CPU_FOLDER + "/present") or "0", CPU_FOLDER + "/possible"))


def _cpus(parameter: str, value: str, highest: int) -> str:
    value = _NAMED.sub(lambda match: "0-%d" % highest if match.group() == "all" else str(highest), value)
    return compress(cpu for cpu in expand(value, "%s of %s" % (parameter, COMMAND_LINE)) if cpu <= highest)


def _partitions(host: Host) -> Iterator[Partition]:
    """Yield the groups that are partitions, of those at the top and of the slices of NPUs and GPUs."""
    if not host.exists(CGROUPS + "/cgroup.controllers"):
        return
    groups = [name for name in host.names(CGROUPS) if "." not in name or name.endswith(_UNITS)]
    for parent in _PARENTS:
        if parent in groups:
            groups += ["%s/%s" % (parent, name) for name in host.names("%s/%s" % (CGROUPS, parent), "*.slice")]
    for group in sorted(groups)[:_MOST_GROUPS]:
        folder = "%s/%s" % (CGROUPS, group)
        kind, _blank, why = (host.read(folder + "/cpuset.cpus.partition") or "").partition(" ")
        if kind not in ("root", "isolated"):
            continue
        cpus = host.read(folder + "/" + ("cpuset.cpus" if why else "cpuset.cpus.effective")) or ""
        yield {"group": group, "kind": kind, "valid": not why, "cpus": compress(expand(cpus, folder))}
