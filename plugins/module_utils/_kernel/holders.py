# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a device node: processes by their open files, and the containers that they belong to by their cgroups.

npu-smi says that a card is held, not by whom, and its own table of processes is cut short. A container that has the node and has not opened
it is not found.
"""

from __future__ import annotations

import os
import re
from typing import Any, Container, Iterable, Iterator, NamedTuple, Sized

from .._host import Host

_SHOWN = 3
_ACCELERATOR = re.compile(r"/dev/(davinci(\d+|_manager)|nvidia[\w-]*)\Z")
_GROUP = re.compile(r"^(?:0:|\d+:name=systemd):(/.*)$", re.MULTILINE)
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{12})[0-9a-f]{52}(?=[./]|$)", re.MULTILINE)


def holders(host: Host, nodes: Iterable[str], processes: Iterable[int | str] = ()) -> str:
    """Return the holders of device nodes (paths such as ``/dev/davinci0``) as a short text, '' when none is found.

    ``processes`` are further PIDs that are known to use them. Reading other users' open files takes root.
    """
    found: dict[str | None, list[str]] = {}
    for process in sorted(set(map(str, processes)) | set(_with_open_file(host, set(nodes))), key=int):
        name = host.read("/proc/%s/comm" % process)
        if name is not None:
            container = _CONTAINER.search(host.read("/proc/%s/cgroup" % process) or "")
            found.setdefault(container.group(1) if container else None, []).append("%s %s" % (process, name))
    containers = ["container %s (process %s)" % (name, _listed(members)) for name, members in sorted(found.items(), key=str) if name]
    return ", ".join(containers[:_SHOWN] or (["process " + _listed(found[None])] if None in found else [])) + _rest(containers)


class User(NamedTuple):
    """A process that has accelerators open: its command, its cgroup as systemd has it, and the paths of the devices below ``/dev``."""

    name: str
    cgroup: str
    devices: set[str]


def users_of_accelerators(host: Host) -> dict[int, User]:
    """Return ``{process: User}`` of the processes that have accelerators open, in the order of their numbers."""
    found: dict[int, User] = {}
    for process, target in _open_files(host):
        group = _GROUP.search(host.read("/proc/%s/cgroup" % process) or "") if _ACCELERATOR.match(target) else None
        if group:
            name = host.read("/proc/%s/comm" % process) or "ended"
            found.setdefault(int(process), User(name, group.group(1), set())).devices.add(target)
    return dict(sorted(found.items()))


def groups_of_holders(host: Host) -> list[dict[str, Any]]:
    """Return who has accelerators open, by cgroup: ``[{cgroup, processes, devices}]``.

    ``cgroup`` is a path as systemd has it (``/system.slice/docker-….scope``), ``processes`` are texts of PID and command, ``devices`` paths
    below ``/dev``.
    """
    found: dict[str, tuple[list[str], set[str]]] = {}
    for process, user in users_of_accelerators(host).items():
        processes, devices = found.setdefault(user.cgroup, ([], set()))
        processes.append("%d %s" % (process, user.name))
        devices.update(user.devices)
    return [{"cgroup": path, "processes": processes, "devices": sorted(devices)} for path, (processes, devices) in sorted(found.items())]


def in_group(cgroup: str, unit: str) -> bool:
    """Whether a cgroup's path leads to a unit or below it."""
    return "/%s/" % unit in cgroup + "/"


def processes_below(host: Host, unit: str) -> list[int]:
    """Return the numbers of the processes in the cgroup of a unit or below it."""
    groups = ((process, _GROUP.search(host.read("/proc/%s/cgroup" % process) or "")) for process in host.names("/proc", "[0-9]*"))
    return [int(process) for process, group in groups if group and in_group(group.group(1), unit)]


def _with_open_file(host: Host, nodes: Container[str]) -> set[str]:
    return {process for process, target in _open_files(host) if target in nodes}


def _open_files(host: Host) -> Iterator[tuple[str, str]]:
    """Yield ``(process, path)`` of all open files of all processes, as far as they may be read."""
    for process in host.names("/proc", "[0-9]*"):
        folder = "/proc/%s/fd" % process
        for name in host.names(folder):
            try:
                yield process, os.readlink(host.path("%s/%s" % (folder, name)))
            except OSError:
                continue


def _listed(members: list[str]) -> str:
    return ", ".join(members[:_SHOWN]) + _rest(members)


def _rest(members: Sized) -> str:
    return " and %d more" % (len(members) - _SHOWN) if len(members) > _SHOWN else ""
