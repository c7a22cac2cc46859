# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the accelerators of a host: one pass over the open files of all processes, by cgroup. Reads only, and asks no engine.

An open device file is the only proof of use: containers can see devices that they never open. Those that may open one of their own and
have not are found by what systemd and docker allow them, and processes whose files cannot be read by npu-smi's table.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, Collection, Iterable, Iterator, Mapping

from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.devices import minor
from .._kernel.masks import cpuset, online
from .._kernel.memory import mib_of_group, sampled
from .._kernel.machine import CGROUPS, HIERARCHIES
from .._kernel.processes import START, every_pid, folder_of, groups_below, members, stat_fields
from .._base.findings import Device
from .._nvidia_smi import parse_nvidia_apps
from .._smi.tool import find
from .devices import Accelerator, numbers, opened, owners
from .engines import allowed, given_by, group_in, name_in_pod, name_of
from .groups import Group, classified, in_group, is_of_login, of_pods, path_of, title_of
from .._state.unit_files import values

if TYPE_CHECKING:
    from .._base.documents import NpuUser, Rank, UsedNpu, UserProcess

NVIDIA_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin")
OPEN, ALLOWED, TOOL, RECORDED = "open", "allowed", "tool", "recorded"
_HIDDEN = "Who uses the accelerators is not fully known, because only root can read all open files: gather as root (become: true)."


def users(
    host: Host,
    npus: Iterable[Accelerator] = (),
    listed: Mapping[int, Iterable[Device]] | None = None,
    problems: list[str] | None = None,
    monitors: bool = False,
    among: Iterable[int] | None = None,
) -> list[NpuUser]:
    """Return who uses accelerators, by cgroup; programs that only watch them (:func:`is_monitor`) on request.

    ``npus`` are those of a topology or plan; without them a user has devices and no NPUs, and none of the devices is ``unassigned``.
    ``listed`` are the processes of npu-smi's table, with their NPUs. What could not be read is added to ``problems``. ``among``: look at
    these processes only, and not at what may open devices.
    """
    files = numbers(host)
    if host.live and not files and not listed:
        return []
    if problems is not None and files and os.geteuid() != 0:
        problems.append(_HIDDEN)
    opens = {pid: set(opened(host, pid, files).values()) for pid in (every_pid(host) if among is None else among)}
    held = {pid: names for pid, names in opens.items() if names}
    if among is None:
        held.update(on_gpus(host, held, [] if problems is None else problems))
    held.update({pid: set() for pid in listed or () if pid not in held and host.exists("/proc/%d" % pid)})
    groups: dict[Group, list[int]] = {}
    for pid in sorted(pid for pid in held if monitors or not is_monitor(host, pid)):
        path = path_of(host.read("/proc/%d/cgroup" % pid))
        group = classified(path) if path else None
        if group:
            groups.setdefault(group, []).append(pid)
    given: dict[Group, set[str]] = {}
    for group, names in allowed(host, files) if among is None else ():
        pids = members_of(host, group.path) if names and group not in groups else []
        if names and group not in groups and not (pids and all(is_monitor(host, pid) for pid in pids)):
            given.setdefault(group, set()).update(names)
    entries = list(npus)
    whose = owners(host, entries) if entries and (groups or given) else None
    result: list[NpuUser] = []
    for group, pids in groups.items():
        processes = [_process(host, pid, held[pid]) for pid in pids]
        keys = {key for pid in pids if not held[pid] for key in (listed or {}).get(pid, ())}
        witness = OPEN if any(process["devices"] for process in processes) else TOOL
        result.append(_user(host, group, (witness, {name for pid in pids for name in held[pid]}), processes, whose, keys))
    result += [_user(host, group, (ALLOWED, names), [], whose) for group, names in given.items()]
    return sorted(result, key=lambda user: (user["group"], user["name"]))


def on_gpus(host: Host, held: Mapping[int, set[str]], problems: list[str]) -> dict[int, set[str]]:
    """Return the device files of the GPUs that processes use, where they have several open, as far as nvidia-smi tells.

    CUDA can open all of a host for a process that computes on one.
    """
    several = {pid: names for pid, names in held.items() if sum(name.startswith("nvidia") for name in names) > 1}
    several = {pid: names for pid, names in several.items() if not is_monitor(host, pid)}
    tool = find(host, None, "nvidia-smi", NVIDIA_FOLDERS, [], ()) if several else None
    listed = (tool.ask(parse_nvidia_apps, "--query-compute-apps=pid,gpu_bus_id", "--format=csv") if tool else None) or {}
    used = {pid: {"nvidia%s" % minor(host, pci) for pci in listed.get(pid, ())} & names for pid, names in several.items()}
    text = "Process %d (%s) has %d GPUs open, and nvidia-smi lists it on none: it counts as a user of all of them."
    for pid in sorted(pid for pid, names in used.items() if not names):
        problems.append(text % (pid, host.read("/proc/%d/comm" % pid) or "ended", len(several[pid])))
    return {pid: names for pid, names in used.items() if names}


def user_of(host: Host, path: str, pids: Iterable[int], npus: Iterable[Device]) -> NpuUser:
    """Return processes of a cgroup as the user of NPUs that a record says it is."""
    group = classified(path) or Group(path, "other")
    return _user(host, group, (RECORDED, set()), [_process(host, pid, set()) for pid in pids], None, npus)


def created(host: Host, container: str, spec: Mapping[str, Any], npus: Iterable[Accelerator]) -> NpuUser | None:
    """Return a container of a pod that has not started as the user of the NPUs that its specification gives it; None for all others."""
    group, names = classified(group_in(spec)), given_by(spec, numbers(host))
    if not (group and group.kind == "pod" and group.container == container and names):
        return None
    user = _user(host, group, (ALLOWED, names), [], owners(host, npus))
    user["name"] = name_in_pod(spec) or user["name"]
    return user


def is_whole(user: NpuUser) -> bool:
    """Whether a group is one piece of work: a service of the system, or a container. A user's manager has everything of that user, and
    some services have the work of others (:func:`is_shared`)."""
    return bool(user["container"] or user["kind"] == "service") and not is_of_login(user["group"])


def pids_of(host: Host, user: NpuUser) -> list[int]:
    """Return its processes: all of a service or container; of a session, and of what users run, those alone that hold NPUs."""
    holding = [process["pid"] for process in user["processes"]]
    return sorted({*members_of(host, user["group"]), *holding}) if is_whole(user) else holding


def members_of(host: Host, group: str) -> list[int]:
    """Return the processes of a cgroup, by its path as systemd has it, and of those below it."""
    folder = folder_of(host, group.rstrip("/"))
    return sorted({int(pid) for pid in members(host, folder) if pid.isdigit()}) if folder else []


def members_with(host: Host, pids: Collection[int]) -> list[int]:
    """Return processes, with all others of their services and containers."""
    paths = {path_of(host.read("/proc/%d/cgroup" % pid)) for pid in pids}
    groups = [group for group in map(classified, filter(None, paths)) if group and (group.container or group.kind == "service")]
    return sorted(set(pids).union(*(members_of(host, group.path) for group in groups)))


def has_pods(host: Host, group: str) -> bool:
    """Whether pods run in a cgroup: it is that of a node, such as of kind or k3d, and what confines it confines all of them."""
    folders = [CGROUPS + top + group.rstrip("/") for top in (*HIERARCHIES, "/cpuset")]
    names = (posixpath.basename(below) for folder in folders for below in groups_below(host, folder) if below != folder)
    return any(of_pods([name]) for name in names)


def by_process(host: Host, npus: Iterable[Accelerator], user: NpuUser) -> Iterator[NpuUser]:
    """Yield each process of a user as a user of its own, with the NPUs that it has open; where these are not known, with all of them."""
    whose = owners(host, npus) if len(user["npus"]) > 1 or user.get("unassigned") else {}
    for process in user["processes"]:
        keys = sorted({(whose[name].kind, whose[name].id) for name in process["devices"] if name in whose})
        held: list[UsedNpu] = [{"kind": kind, "id": number} for kind, number in keys]
        part = user.copy()
        part.update({"devices": process["devices"], "npus": held if whose and process["devices"] else user["npus"], "processes": [process]})
        if "unassigned" in user:
            part["unassigned"] = [name for name in user["unassigned"] if name in process["devices"]]
        yield part


def ranks(host: Host, npus: Iterable[Accelerator], user: NpuUser, alone: bool = False) -> list[NpuUser]:
    """Return each rank as a user of its own; with ``alone`` also a process that has all devices of its service. None of other work.

    Ranks count from 0 by their devices, as the local ranks of a job do. Titles and environments of processes are no better witness: engines
    pass ranks through pipes, and overwrite both.
    """
    if not is_whole(user) or user["witness"] != OPEN:
        return []
    parts = [part for part in by_process(host, npus, user) if part["npus"] and (alone or part["npus"] != user["npus"])]
    held = sorted({_keys(part) for part in parts})
    for part in parts:
        part["rank"] = held.index(_keys(part))
        part["name"] = "rank %d of %s" % (part["rank"], title_of(user))
        part.update({"container": None, "engine": ""})
        if part["kind"] != "pod":
            part["kind"] = "other"
    return sorted(parts, key=lambda part: (part["rank"], part["processes"][0]["pid"]))


def _keys(user: NpuUser) -> tuple[tuple[str, int], ...]:
    return tuple((npu["kind"], npu["id"]) for npu in user["npus"])


def described_ranks(host: Host, npus: Iterable[Accelerator], user: NpuUser, problems: list[str]) -> list[Rank]:
    """Return the ranks of a user with their CPUs, and how many percent of their pages lie on the nodes of their devices."""
    nodes: dict[tuple[str, int], list[int]] = {}
    for npu in npus:  # of a topology, or of a plan
        local_nodes = ([] if npu["numa"] is None else [npu["numa"]]) if "numa" in npu else expand(npu.get("mems") or "")
        nodes[Device.of(npu)[:2]] = local_nodes
    result: list[Rank] = []
    for part in ranks(host, npus, user):
        process, lists, local = part["processes"][0], [nodes.get(key, []) for key in _keys(part)], None
        try:
            pages = sampled(host, process["pid"]) if all(lists) else {}
            near = sum(number for node, number in pages.items() if any(node in local_nodes for local_nodes in lists))
            local = round(100 * near / sum(pages.values())) if pages else None
        except ValueError as error:
            problems.append("%s." % error)
        result.append({"rank": part["rank"], "pid": process["pid"], "npus": part["npus"], "cpus": process["cpus"], "local": local})
    return result


def _user(
    host: Host,
    group: Group,
    use: tuple[str, set[str]],
    processes: list[UserProcess],
    whose: Mapping[str, Device] | None,
    keys: Iterable[Device] = (),
) -> NpuUser:
    witness, names = use
    held = {whose[name] for name in names if name in whose} if whose else set()
    npus = sorted({(key.kind, key.id) for key in held.union(keys)})
    pids = members_of(host, group.path) if group.kind == "service" else []
    kind = "session" if group.kind == "service" and is_shared(host, group.unit or "", pids) else group.kind
    name = name_of(host, group) if group.container else group.unit if kind in ("service", "pod") else None
    pid = processes[0]["pid"] if processes else next(iter(members_of(host, group.path)), None)
    unassigned = [] if whose is None else [name for name in names if name not in whose]
    sets = {kind: cpuset(host, pid, kind) if pid else None for kind in ("cpus", "mems")}
    user: NpuUser = {
        "group": group.path,
        "kind": kind,
        "unit": group.unit,
        "engine": group.engine,
        "container": group.container,
        "name": name or (processes[0]["command"] if processes else group.path),
        "devices": sorted(names, key=_numbered),
        "npus": [{"kind": kind, "id": number} for kind, number in npus],
        "processes": processes,
        "cpus": compress(sets["cpus"] or ()),
        "mems": compress(sets["mems"] or ()),
        "witness": witness,
    }
    if unassigned:
        user["unassigned"] = sorted(unassigned, key=_numbered)
    around = cpuset(host, pid, above=is_whole(user)) if pid else None
    if around and not online(host) <= around:
        user["around"] = compress(around)
    mib = mib_of_group(host, group.path) if user["container"] or kind == "service" else {}
    if mib:
        user["memory_mib"] = mib
    return user


def _numbered(name: str) -> tuple[str, int]:
    kind = name.rstrip("0123456789")
    return kind, int(name[len(kind) :])


def _process(host: Host, pid: int, names: set[str]) -> UserProcess:
    """Return what is known of a process. Each of its threads can have CPUs of its own."""
    fields = stat_fields(host, "/proc/%d" % pid)
    tasks = host.names("/proc/%d/task" % pid, "[0-9]*")
    places = ["/proc/%d/task/%s" % (pid, task) for task in tasks] or ["/proc/%d" % pid]
    statuses = [host.read(place + "/status") or "" for place in places]
    lists = {status.partition("\nCpus_allowed_list:")[2].partition("\n")[0].strip() for status in statuses}
    return {
        "pid": pid,
        "start": int(fields[START]) if len(fields) > START else 0,
        "command": host.read("/proc/%d/comm" % pid) or "ended",
        "devices": sorted(names, key=_numbered),
        "cpus": compress({cpu for text in lists for cpu in expand(text)}),
    }


def processes_below(host: Host, unit: str) -> list[int]:
    """Return the numbers of the processes in the cgroup of a unit or below it."""
    return [pid for pid in every_pid(host) if in_group(path_of(host.read("/proc/%d/cgroup" % pid)) or "/", unit)]


_LENGTH = 15
"""Characters of a program's name that the kernel keeps."""
MONITORS = (
    *("nvidia-persistenced", "nv-hostengine", "dcgm-exporter", "dcgmi", "nvidia-smi", "nvidia-device-plugin", "nvtop"),
    *("npu-smi", "npu-exporter", "device-plugin", "noded"),
)
"""They keep accelerators open and compute nothing on them: they watch all of a host and belong to the pool of none.

Sources: the README of nvidia-persistenced ("does not actually use any device resources itself"); kubernetes-sigs/dra-driver-nvidia-gpu
issue 1076 for dcgm-exporter, which embeds the host engine of DCGM, on all ``/dev/nvidia<N>``; the build scripts of Ascend's mind-cluster
for the last three. Which device files these open was not seen; they ask the driver by DCMI, as ``npu-smi`` does.
"""
LAUNCHERS = (
    *("cron", "crond", "atd", "anacron", "sshd", "sshd-session", "inetd", "xinetd", "tmux: server", "screen", "code-server"),
    *("slurmd", "slurmstepd", "pbs_mom", "sge_execd", "sbatchd", "nomad", "raylet"),
    *("jupyterhub", "jupyter-lab", "jupyter-notebook", "jupyterhub-singleuser", "configurable-http-proxy"),
    *("supervisord", "circusd", "runsvdir", "s6-svscan", "monit", "pm2"),
    *("gitlab-runner", "buildkite-agent", "Runner.Listener", "act_runner"),
    *("dockerd", "containerd", "podman", "crio", "buildkitd", "kubelet", "k3s", "k3s-server", "k3s-agent", "rke2"),
    *("libvirtd", "incusd", "lxd"),
)
_USER = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)


def _is_among(host: Host, pid: int, programs: Iterable[str]) -> bool:
    return (host.read("/proc/%d/comm" % pid) or "") in [name[:_LENGTH] for name in programs]


def is_monitor(host: Host, pid: int) -> bool:
    return _is_among(host, pid, MONITORS)


def is_shared(host: Host, unit: str, pids: Iterable[int]) -> bool:
    """Whether a service starts the work of others, and each of its processes holds NPUs by itself; ``pids`` are all in it.

    A launcher tells; ``KillMode=process``, with which a unit says that what it starts outlives it (systemd.kill(5); sshd, cron, slurmd and
    docker ship with it); and processes of several users.
    """
    modes = [value for _path, value in values(host, unit).get("KillMode", ())]
    if modes[-1:] in (["process"], ["none"]):
        return True
    users = set()
    for pid in pids:
        if _is_among(host, pid, LAUNCHERS):
            return True
        users.update(_USER.findall(host.read("/proc/%d/status" % pid) or ""))
    return len(users) > 1
