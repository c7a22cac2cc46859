# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gave a thread fewer CPUs than its role has: a group around it, or a mask, and whose. Reads only.

A mask is handed down by fork, and from Linux 6.2 on every cpuset leaves of it what it can. So the cause is the outermost ancestor that has
the same mask, and what its unit or systemd's configuration says. Sources: systemd-system.conf(5), kernel-command-line(7); TuneD's profile
cpu-partitioning; opencontainers/runc issues 4858 and 4869, containers/crun issue 1317.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from .._base.binders import BINDERS
from .._host.host import Host
from .._kernel.interrupts import Thread
from .._kernel.machine import CGROUPS
from .._kernel.isolation import COMMAND_LINE, parameters
from .._kernel.masks import cpuset, cpuset_folder, granted, online
from .._kernel.processes import command_of, parent_of, started_with, variables_of
from .._state.systemd import UNIT_SUFFIX
from .._state.unit_files import numbers, values_of_files, values
from .groups import path_of

CONFIGURATION = "systemd/system.conf"
"""Below these folders, with drop-ins in the folder ``system.conf.d`` next to it."""
_FOLDERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
_TUNED = "/etc/tuned/active_profile"
_TUNED_VARIABLES = "/etc/tuned/%s-variables.conf"
_RUNTIMES = ("containerd-shim", "conmon", "runc", "crun")
_MOST_ANCESTORS = 64


class Origin(NamedTuple):
    """``why`` a thread has few CPUs, and ``remedy``: what gives it all of them.

    ``handed_down``: whether systemd, an engine or its runtime gave it the mask, and neither its program nor its unit asked for that.
    """

    why: str
    remedy: str
    handed_down: bool = False


_OWN = "the program itself, or what started it, set this mask (sched_setaffinity, taskset, numactl)"
_RESTART = "name its service in npu_affinity_services, bind and restart it: the drop-in takes the mask away"
_ADOPT = "bind with npu_affinity_adopt: now, or " + _RESTART


def origin(host: Host, pid: int, mask: set[int], wanted: set[int]) -> Origin:
    """Return who probably gave a thread of a process this mask, which lacks some of the CPUs ``wanted``."""
    around = cpuset(host, pid)
    if around is not None and not wanted <= around:
        return _of_group(host, pid, wanted)
    there = online(host) if around is None else around
    top = _outermost(host, pid, mask, there)
    asked = [(source, cpus, remedy, top != pid) for source, cpus, remedy in (*_settings_of_unit(host, top), *_tuned(host))]
    for source, cpus, remedy, handed_down in [*asked, *((source, cpus, _ADOPT, True) for source, cpus in manager(host))]:
        if cpus & there == mask:
            return Origin(source, remedy, handed_down)
    comm = host.read("/proc/%d/comm" % top) or ""
    if top == 1:
        return Origin("systemd itself (process 1) is confined to them", _ADOPT, True)
    if comm.startswith(_RUNTIMES):
        text = "%s (process %d), whose mask runc before 1.2.7 and 1.3.1, and crun before 1.9.2, pass on"
        return Origin(text % (comm, top), "bind with npu_affinity_adopt: now, or update the runtime", True)
    if top != pid:
        return Origin("%s (process %d) started it with this mask" % (comm or "a process", top), "start it again without")
    return binder_of(host, pid) or Origin(_OWN, "disable its binding (engine in npu_affinity_services, docs/workloads.md)")


def binder_of(host: Host, pid: int) -> Origin | None:
    """Return the program, of those that bind themselves, that the environment and command line of a process tell; None for any other."""
    environment, command = variables_of(started_with(host, pid)), command_of(host, pid)
    for binder in BINDERS:
        how = binder.enabled_by(environment, command)
        if how:
            return Origin("%s binds itself, started %s" % (binder.title, how), binder.remedy or "see docs/binders.md")
    return None


def _of_group(host: Host, pid: int, wanted: set[int]) -> Origin:
    """Name the outermost group of a process that lacks some of the CPUs."""
    narrow = cpuset_folder(host, pid)
    top = next(top for top in (CGROUPS + "/cpuset", CGROUPS) if (narrow + "/").startswith(top + "/"))
    while narrow != top and not wanted <= (granted(host, posixpath.dirname(narrow)) or wanted):
        narrow = posixpath.dirname(narrow)
    if narrow == top:
        why = "the root's effective cpuset (%s) has no others, because a partition holds them"
        return Origin(why % top, "dissolve the partition, or plan without its CPUs")
    return Origin("its group %s grants no others" % narrow, "widen that group, or start it in the slice of its device")


def _outermost(host: Host, pid: int, mask: set[int], there: set[int]) -> int:
    """Return the outermost ancestor of a process whose mask leaves the same CPUs, or the process itself."""
    for _step in range(_MOST_ANCESTORS):
        parent = parent_of(host, pid)
        text = Thread("", parent).read(host) if parent else None
        if not text or (numbers(text) or set()) & there != mask:
            break
        pid = parent
    return pid


def _settings_of_unit(host: Host, pid: int) -> list[tuple[str, set[int], str]]:
    names = (path_of(host.read("/proc/%d/cgroup" % pid)) or "").split("/")
    unit = next((name for name in names if UNIT_SUFFIX.search(name) and not name.endswith(".slice")), "")
    rows = values(host, unit).get("CPUAffinity", []) if unit else []
    cpus = set().union(*(numbers(value) or () for _path, value in rows))
    return [("%s says CPUAffinity=%s" % rows[-1], cpus, "change that there, and restart %s" % unit)] if cpus else []


def manager(host: Host) -> list[tuple[str, set[int]]]:
    """Return ``(source, CPUs)`` of what confines systemd and every process that it starts."""
    words = [word.partition("=")[::2] for word in parameters(host.read(COMMAND_LINE) or "")]
    sources = [("%s has systemd.cpu_affinity=%s" % (COMMAND_LINE, value), value) for name, value in words if name == "systemd.cpu_affinity"]
    drop_ins: dict[str, str] = {}
    for folder in _FOLDERS:
        for name in host.names("%s/%s.d" % (folder, CONFIGURATION), "*.conf"):
            drop_ins.setdefault(name, "%s/%s.d/%s" % (folder, CONFIGURATION, name))
    main = [path for path in ("%s/%s" % (folder, CONFIGURATION) for folder in _FOLDERS) if host.exists(path)][:1]
    rows = values_of_files(host, main + [drop_ins[name] for name in sorted(drop_ins)]).get("CPUAffinity", [])
    if rows:
        sources = [("%s says CPUAffinity=%s for all that systemd starts" % rows[-1], " ".join(value for _path, value in rows)), *sources]
    return [(source, numbers(value) or set()) for source, value in sources]


def _tuned(host: Host) -> list[tuple[str, set[int], str]]:
    profile = (host.read(_TUNED) or "").strip()
    text = host.read(_TUNED_VARIABLES % profile) if profile and "/" not in profile else None
    lines = [line.partition("=")[2].strip() for line in (text or "").splitlines() if line.startswith("isolated_cores=")]
    isolated = numbers(lines[-1]) if lines else None
    if not isolated:
        return []
    why = "TuneD's profile %s takes running threads off its isolated CPUs" % profile
    return [(why, online(host) - isolated, "take the CPUs of the pools out of isolated_cores, or choose another profile")]
