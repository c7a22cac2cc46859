# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Affinity masks of threads and the cpusets around them: whether a thread has a mask of its own, and how to give it none.

Since Linux 6.2 the kernel keeps the mask that ``sched_setaffinity`` asked for, cuts it to the cpuset of the thread, and does this again
whenever the cpuset changes (``user_cpus_ptr`` in ``kernel/sched/core.c``). Nothing shows the mask that was asked for. Older kernels keep
the result alone, and the next change of the cpuset overwrites it.

The rule for everything that places or restores threads: a mask with all CPUs that the cpuset grants is no mask of the thread's own, as far
as anyone can see. All possible CPUs are requested instead. Every kernel cuts these to the cpuset, and the thread follows the
cpuset from then on; asked for the cpuset's CPUs, it would stay on them for ever.
"""

from __future__ import annotations

import posixpath
from typing import Iterator

from .._base.cpulist import expand
from .._host.host import PATH_MAX, Host
from .cpus import CPU_FOLDER, read_list
from .machine import CGROUPS
from .processes import control_groups


def possible(host: Host) -> set[int]:
    """Return the CPUs that the machine may ever have, or those that are online if no file lists them."""
    return read_list(host, CPU_FOLDER + "/possible") or online(host)


def online(host: Host) -> set[int]:
    return read_list(host, CPU_FOLDER + "/online")


def usable(host: Host, pid: int) -> set[int]:
    """Return the CPUs that a process may have: those of its cpuset that are online. Empty if unknown."""
    there, granted = online(host), cpuset(host, pid)
    return there if granted is None else granted & (there or granted)


def asked_for(host: Host, cpus: set[int], granted: set[int]) -> set[int]:
    """Return the CPUs to request for a thread to run on these: all possible ones if these are all that it is granted."""
    return possible(host) or cpus if granted and granted <= cpus else cpus


def cpuset(host: Host, pid: int, kind: str = "cpus", above: bool = False) -> set[int] | None:
    """Return the CPUs (or memory nodes, ``mems``) that the cgroup of a process, or the one ``above`` it, grants; None without a cpuset
    controller."""
    sets = (granted(host, posixpath.dirname(folder) if above else folder, kind) for folder in _folders(host, pid))
    return next((members for members in sets if members is not None), None)


def cpuset_folder(host: Host, pid: int) -> str:
    """Return the folder of the group whose cpuset, or that of a group around it, confines a process; '' without any."""
    return next((folder for folder in _folders(host, pid) if granted(host, folder) is not None), "")


def _folders(host: Host, pid: int) -> Iterator[str]:
    """Yield the folders of the groups of a process that can have a cpuset."""
    for controllers, path in control_groups(host, pid):
        if not controllers or "cpuset" in controllers.split(","):
            yield CGROUPS + ("/cpuset" if controllers else "") + path


def granted(host: Host, folder: str, kind: str = "cpus") -> set[int] | None:
    """Return what the innermost group with a cpuset grants, from the folder of one on outwards, or None without any."""
    is_v1 = (folder + "/").startswith(CGROUPS + "/cpuset/")
    top, name = (CGROUPS + "/cpuset", "cpuset.effective_%s") if is_v1 else (CGROUPS, "cpuset.%s.effective")
    while (folder + "/").startswith(top + "/") and len(folder) < PATH_MAX:
        text = host.read("%s/%s" % (folder, name % kind))
        if text:
            return set(expand(text, name % kind))
        folder = posixpath.dirname(folder)
    return None
