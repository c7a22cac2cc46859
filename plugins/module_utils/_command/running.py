# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command in the slice of its NPUs: with their CPUs, memory nodes, devices and affinity mask before it starts.

systemd puts the scope into the slice (systemd-run(1)), taskset(1) sets the mask, and each executes the next one in its place, so the
command has the process number, the terminal and the signals of this one. Where systemd cannot hold CPU sets (cgroup version 1), numactl(8)
does what is left.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.cpus import CPU_FOLDER, read_list
from .._kernel.machine import machine, sets_cpus
from .._kernel.masks import asked_for
from .._kernel.pci import DEVICE_FOLDER
from .._base.findings import Device
from .._state.plan_file import memory_nodes, numactl_memory
from .._features.threads.placing import cpus_of_roles
from .._state.systemd import Systemd
from .._state.unit_environment import VISIBLE, agrees, visible_devices
from .._ranks import matching
from .state import HostRecord

if TYPE_CHECKING:
    from .._base.documents import BoundWorkload, PlanEntry, UnitSets

_CLIENTS = {
    "docker": "docker",
    "docker-compose": "compose",
    "podman": "podman",
    "podman-compose": "compose",
    "nerdctl": "nerdctl",
    "ctr": "ctr",
}
"""Programs that only ask an engine for work to be started, each with the form of ``npu-affinity launch`` for it."""
_CLIENTS_OF_KUBELET = ("crictl", "kubectl")
_STARTERS = {"sudo", "env", "nohup", "time"}
_FOLDERS = ("/usr/bin", "/bin")


class Launch(NamedTuple):
    """What is executed, what its environment gets, and in few words where it runs."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    where: str


class Place(NamedTuple):
    """An NPU, or a ``workload`` or ``vnpu`` as the state in force has it. The first of ``slices`` that the host has is taken."""

    title: str
    npus: Sequence[PlanEntry]
    slices: Sequence[str]
    workload: BoundWorkload | None = None
    vnpu: Mapping[str, Any] | None = None


def launch(record: HostRecord, name: str, command: Sequence[str], user: str | None = None) -> Launch:
    """Return how a command is started for an NPU or a workload. Raises ``ValueError`` with a sentence where it must not be, or cannot."""
    place = find(record, name)
    if place.vnpu:
        raise ValueError(
            "%s is a part of an NPU, which a library inside a container holds: start its container with the options of "
            "/etc/npu-affinity/vnpu/%s.env, as 'npu-affinity launch docker %s' prints them" % (place.title, place.vnpu["name"], name)
        )
    _refuse_client(place, name, command)
    refuse_lost(record, place)
    online = read_list(record.host, CPU_FOLDER + "/online") or {cpu for npu in place.npus for cpu in expand(npu["pool"])}
    home = next((unit for unit in place.slices if unit in record.expected()), None)
    environment = _environment(place.npus, user)
    if home is None:
        return _without_slice(record, place, [*_as_user(record.host, user), *command], environment, online)
    sets = record.expected()[home]
    _refuse_other_sets(record.host, home, sets, online)
    granted = set(expand(sets["cpus"])) & online
    of_all = home not in place.slices[:1]
    mask = granted if of_all else _mask(record, place.npus, online, granted)
    words = [_program(record.host, "systemd-run", "it comes with systemd"), "--scope", "--collect", "--slice=" + home]
    words += ["--description=%s for %s" % (command[0], place.title), "--", *_taskset(record.host, asked_for(record.host, mask, granted))]
    words += [*_as_user(record.host, user), *command]
    where = "%s in %s, CPUs %s" % (place.title, home, compress(mask))
    return Launch(words, environment, where + (", memory nodes %s" % sets["mems"] if sets["mems"] else ""))


def _refuse_client(place: Place, name: str, command: Sequence[str]) -> None:
    """Refuse a program that lets an engine start the work, which would run outside the slice."""
    client = os.path.basename(next((word for word in command if os.path.basename(word) not in _STARTERS and "=" not in word), ""))
    where = place.slices[0] or "the pool"
    if client in _CLIENTS:
        raise ValueError(
            "%s lets its engine start the work, which would run outside %s: start it with what 'npu-affinity launch %s %s' prints, or as "
            "usual, and adopt the work with npu_affinity_adopt" % (client, where, _CLIENTS[client], name)
        )
    if client in _CLIENTS_OF_KUBELET:
        raise ValueError(
            "%s lets the kubelet start the work, which would run outside %s: give pods their CPUs as forms kubernetes, dra and balloons of "
            "filter npu.affinity.launch do" % (client, where)
        )


def find(record: HostRecord, name: str) -> Place:
    """Return what a name stands for: an NPU by its number, PCI function or slice, a workload or a vNPU."""
    if record.plan is None:
        raise ValueError("there is no plan in force on this host: bind it first")
    for workload in record.slices["workloads"]:
        if name in (workload["name"], workload["slice"]):
            npus = [npu for npu in record.npus if npu.get("slice") in workload["npus"]]
            return Place("workload %s" % workload["name"], npus, [workload["slice"]], workload=workload)
    for vnpu in record.slices["vnpus"]:
        if name in (vnpu["name"], vnpu["slice"]):
            npus = [npu for npu in record.npus if npu["id"] in vnpu["npus"] and Device.of(npu).kind == "npu"]
            return Place("vNPU %s" % vnpu["name"], npus, [vnpu["slice"]], vnpu=vnpu)
    npu = find_npu(record, name)
    parent = "%s.slice" % Device.of(npu).kind
    return Place(Device.of(npu).full_title, [npu], [npu.get("slice") or "", parent])


def find_npu(record: HostRecord, name: str) -> PlanEntry:
    """Return the NPU of the plan that a name stands for, see :func:`matching`. Raises ``ValueError`` with what there is instead."""
    same = matching(record.npus, name)
    if len(same) == 1:
        return same[0]
    if same:
        raise ValueError("%s is the PCI function of %s; name one of them" % (name, " and ".join(Device.of(npu).title for npu in same)))
    slices = {Device.of(npu).title: npu.get("slice") or "npu-%s.slice" % npu["id"] for npu in record.npus}
    there = [home[: -len(".slice")] for home in slices.values()]
    there += ["workload %s" % workload["name"] for workload in record.slices["workloads"]]
    text = "'%s' is not the slice or PCI function of an NPU or GPU, nor a workload, on this host, which has %s"
    wanted = name.lower().replace(".slice", "").replace("-", "")  # after another one was lost, an id can be that of another slice
    moved = ["%s is in %s" % (title, home) for title, home in slices.items() if wanted in (title.lower().replace(" ", ""), title[4:])]
    raise ValueError(text % (name, ", ".join(there) or "none") + (" (%s)" % ", ".join(moved) if moved else ""))


def refuse_lost(record: HostRecord, place: Place) -> None:
    """Refuse NPUs that are gone, and those whose numbers have closed up since the bind because another one is gone."""
    gone = [npu for npu in record.npus if npu.get("pci") and not record.host.exists("%s/%s" % (DEVICE_FOLDER, npu["pci"].lower()))]
    if not place.npus:
        raise ValueError("all devices of %s are missing; bind again" % place.title)
    for npu in (npu for npu in gone if npu in place.npus):
        raise ValueError("%s dropped off the PCI bus; bind again when it is back or permanently removed" % Device.of(npu).full_title)
    for npu in place.npus:
        for other in (other for other in gone if Device.of(other).kind == Device.of(npu).kind and other["id"] < npu["id"]):
            text = "%s dropped off the PCI bus, and npu-smi has renumbered the others: bind again to identify which one %s is now"
            raise ValueError(text % (Device.of(other).full_title, Device.of(npu).full_title))


def _refuse_other_sets(host: Host, unit: str, sets: UnitSets, online: set[int]) -> None:
    """Refuse a slice to which the kernel does not grant what it should."""
    systemd = Systemd(host)
    granted = systemd.effective(unit, "cpus")
    if systemd.cgroup(unit) is None:
        raise ValueError("%s is not active: systemctl start %s, or bind again" % (unit, unit))
    wanted = set(expand(sets["cpus"])) & online
    if granted != wanted:
        has = "no cpuset" if granted is None else compress(granted) or "none"
        raise ValueError("%s should have CPUs %s and has %s: 'npu-affinity verify' shows why" % (unit, compress(wanted), has))


def _mask(record: HostRecord, npus: Sequence[PlanEntry], online: set[int], granted: set[int]) -> set[int]:
    """Return the CPUs on which the command starts: those of role main where role threads takes care of the other roles, else all."""
    roles = cpus_of_roles(npus, online, granted)[0] if record.live.get("threads") else {}
    return roles.get("main") or granted


def _without_slice(record: HostRecord, place: Place, command: Sequence[str], environment: Mapping[str, str], online: set[int]) -> Launch:
    """Return how a command is started where systemd cannot hold its CPU set."""
    facts = machine(record.host)
    if sets_cpus(facts):
        advice = " ".join(sum(record.notes.values(), [])) or "Switch role slices on (npu_affinity_slices_enabled)"
        raise ValueError("this host has no slice for %s. %s" % (place.title, advice))
    pool = {cpu for npu in place.npus for cpu in expand(npu["pool"])} & online
    mask = _mask(record, place.npus, online, pool)
    nearest = compress({node for npu in place.npus for node in expand(npu.get("mems") or "")})
    mems = compress({node for npu in place.npus for node in expand(memory_nodes(npu))})
    where = "%s on CPUs %s" % (place.title, compress(mask)) + (", memory nodes %s" % mems if mems else "")
    if not mems:
        return Launch([*_taskset(record.host, mask), *command], environment, where)
    numactl = _program(record.host, "numactl", "install it: systemd cannot hold memory nodes here (cgroup %s)" % facts["cgroup"])
    return Launch([numactl, "--physcpubind=" + compress(mask), *numactl_memory(nearest, mems), "--", *command], environment, where)


def _environment(npus: Sequence[PlanEntry], user: str | None) -> dict[str, str]:
    """Return the variables that confine a process to its devices, and those of another user. Raises ``ValueError`` where the caller's
    environment has other devices: some of them are its choice."""
    environment: dict[str, str] = {}
    for kind in ("npu", "gpu"):
        wanted = visible_devices(kind, sorted(npu["id"] for npu in npus if Device.of(npu).kind == kind))
        inherited = {name: os.environ[name] for name in wanted if name in VISIBLE and name in os.environ}
        for name, value in inherited.items():
            if not agrees(name, value, wanted[name]):
                text = "%s=%s is set, and the devices here are %s: unset it, or name the devices that it means"
                raise ValueError(text % (name, value, wanted[name]))
        environment.update(wanted, **inherited)
    if user:
        entry = _user(user)
        environment.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name, SHELL=entry.pw_shell)
    return environment


def _as_user(host: Host, user: str | None) -> list[str]:
    """Return the words that make a command one of another user, with the groups of that user."""
    if not user:
        return []
    entry = _user(user)
    setpriv = _program(host, "setpriv", "install util-linux")
    return [setpriv, "--reuid=%d" % entry.pw_uid, "--regid=%d" % entry.pw_gid, "--init-groups", "--"]


def _taskset(host: Host, cpus: set[int]) -> list[str]:
    return [_program(host, "taskset", "install util-linux"), "--cpu-list", compress(cpus)]


def _user(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise ValueError("there is no user %s on this host" % user)


def _program(host: Host, name: str, advice: str) -> str:
    path = host.find_program(name, _FOLDERS)
    if path is None:
        raise ValueError("%s is not installed; %s" % (name, advice))
    return path
