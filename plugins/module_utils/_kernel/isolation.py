# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that the kernel command line or a cpuset partition sets apart. Reads only.

Sources: Linux ``Documentation/admin-guide/kernel-parameters.txt`` and ``Documentation/admin-guide/cgroup-v2.rst``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from .._base.cpulist import compress, expand
from .._host.host import Host
from .cpus import CPU_FOLDER
from .machine import CGROUPS

if TYPE_CHECKING:
    from typing import Iterator

    from .._base.documents import Isolation, Partition

COMMAND_LINE = "/proc/cmdline"
_WORD = re.compile(r'(?:[^\s"]|"[^"]*(?:"|\Z))+')
_PARAMETERS = ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity")
"""The parameters of the command line that set CPUs apart."""
_FLAGS = ("domain", "managed_irq", "nohz")
_NAMED = re.compile(r"\b(?:all|N)\b")
_UNITS = (".slice", ".scope", ".service")
_PARENTS = ("npu.slice", "gpu.slice")
_MOST_GROUPS = 64
_MOST_LETTERS = 4096
"""The groups that are looked at, and the letters of a value. A kernel command line has at most 4,096."""


def isolation(host: Host, problems: list[str]) -> Isolation:
    """Return what sets CPUs apart; without it the result is empty, and each key is there only where something does.

    ``flags`` are those of ``isolcpus``. What it isolates from the scheduler is ``cpus.isolated`` of the topology, as the kernel has it:
    without the flag domain it is nothing. A parameter or partition that names no CPUs is left out, with a sentence in ``problems``.
    """
    words = (word.partition("=") for word in parameters((host.read(COMMAND_LINE) or "")[:_MOST_LETTERS]))
    given = {name: value for name, is_set, value in words if is_set and name in _PARAMETERS}
    isolated = given.get("isolcpus", "").split(",")
    if "isolcpus" in given:
        given["isolcpus"] = ",".join(word for word in isolated if word not in _FLAGS)
    tickless = host.read(CPU_FOLDER + "/nohz_full")
    if tickless is not None or host.live:  # a record may lack the file; a kernel without it ignores the parameter
        given["nohz_full"] = (tickless or "").strip().replace("(null)", "")
    highest = max(expand(host.read(CPU_FOLDER + "/possible") or host.read(CPU_FOLDER + "/present") or "0", CPU_FOLDER + "/possible"))
    values: dict[str, str] = {}
    for name, value in given.items():
        try:
            if value or name != "nohz_full":
                values[name] = _cpus(name, value, highest)
        except ValueError as error:
            problems.append("%s." % error)
    result = cast("Isolation", values)
    if "isolcpus" in result:
        result["flags"] = [flag for flag in _FLAGS if flag in isolated] or ["domain"]
    groups = list(partitions(host, problems))
    if groups:
        result["partitions"] = groups
    return result


def parameters(text: str) -> Iterator[str]:
    """Yield the words of a kernel command line without their quotes, as ``next_arg`` of Linux ``lib/cmdline.c`` has them."""
    for word in _WORD.findall(text):
        name, is_set, value = (word[1:] if word[0] == '"' else word).partition("=")
        is_quoted = '"' in (word[0], value[:1])
        value = value[1:] if value[:1] == '"' else value
        yield name + is_set + (value[:-1] if is_quoted and value.endswith('"') else value)


def _cpus(parameter: str, value: str, highest: int) -> str:
    """Return the CPUs of a value, in which ``N`` stands for the highest one."""
    value = _NAMED.sub(lambda match: "0-%d" % highest if match.group() == "all" else str(highest), value)
    return compress(cpu for cpu in expand(value, "%s of %s" % (parameter, COMMAND_LINE)) if cpu <= highest)


def partitions(host: Host, problems: list[str]) -> Iterator[Partition]:
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
        cpus = host.read(folder + ("/cpuset.cpus" if why else "/cpuset.cpus.effective")) or ""
        try:
            yield {"group": group, "kind": kind, "valid": not why, "cpus": compress(expand(cpus, folder))}
        except ValueError as error:
            problems.append("%s." % error)
