# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes as procfs and the cgroup tree show them. Source: Linux ``Documentation/filesystems/proc.rst``, proc(5), cgroups(7)."""

from __future__ import annotations

from typing import Container, Iterable, Iterator

from .._host.host import Host
from .machine import CGROUPS, HIERARCHIES

BOOT = "/proc/sys/kernel/random/boot_id"
PARENT, START = 1, 19
"""Which of :func:`stat_fields` are its parent and the start of a process or thread, in clock ticks since the boot."""


def stat_fields(host: Host, folder: str) -> list[str]:
    """Return the fields behind the command's name in ``stat`` of a folder of procfs, field 3 of proc(5) first; none where it is gone."""
    return (host.read(folder + "/stat") or "").rpartition(")")[2].split()


def every_pid(host: Host) -> list[int]:
    return [int(name) for name in host.names("/proc", "[0-9]*") if name.isdecimal()]


def parent_of(host: Host, pid: int) -> int:
    """Return the number of a process's parent, 0 for none."""
    fields = stat_fields(host, "/proc/%d" % pid)
    return int(fields[PARENT]) if len(fields) > PARENT else 0


def started_with(host: Host, pid: int | str) -> list[str]:
    """Return the environment that a process was started with, as ``NAME=value``; one empty text where it has ended or may not be read."""
    return (host.read("/proc/%s/environ" % pid) or "").split("\0")


def variables_of(environment: Iterable[str]) -> dict[str, str]:
    """Return ``{name: value}`` of an environment; of several values of a variable the last."""
    return {name: value.strip() for name, equals, value in (word.partition("=") for word in environment) if equals}


def command_of(host: Host, pid: int | str) -> list[str]:
    """Return the words of the command line of a process; one empty text where it has ended, or is a thread of the kernel."""
    return (host.read("/proc/%s/cmdline" % pid) or "").split("\0")


def control_groups(host: Host, pid: int) -> list[tuple[str, str]]:
    """Return ``[(controllers, path)]`` of the hierarchies in which a process has a group, '' for v2's controllers; none where it ended."""
    rows = ((line.split(":", 2) + ["", ""])[:3] for line in (host.read("/proc/%d/cgroup" % pid) or "").splitlines())
    return [(controllers, path.rstrip("/")) for _number, controllers, path in rows]


def folder_of(host: Host, group: str) -> str:
    """Return the folder of a cgroup, by its path as systemd has it; '' if there is none."""
    folders = [CGROUPS + top + group for top in HIERARCHIES]
    return next((folder for folder in folders if host.exists(folder + "/cgroup.procs")), "")


def members(host: Host, folder: str, without: Container[str] = ()) -> list[str]:
    """Return the processes of a cgroup, by its folder, and of those below it, except for the folders ``without``."""
    return [pid for group in groups_below(host, folder, without) for pid in (host.read(group + "/cgroup.procs") or "").split()]


def groups_below(host: Host, folder: str, without: Container[str] = ()) -> Iterator[str]:
    """Yield the folder of a cgroup and those of all below it, outer ones first, except for the folders ``without``.

    Workloads can nest groups deeper than Python recurses.
    """
    pending = [folder]
    while pending:
        group = pending.pop()
        yield group
        inner = ("%s/%s" % (group, name) for name in reversed(host.names(group)))
        pending += [name for name in inner if name not in without and host.exists(name + "/cgroup.procs")]
