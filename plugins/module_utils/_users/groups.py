# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cgroup is: a service, a container of some engine, a pod, a session. Its path tells.

Paths: systemd's ``docs/CGROUP_DELEGATION.md``, runc's and crun's systemd drivers, and ``pkg/kubelet/cm`` of Kubernetes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Collection, Iterable, NamedTuple, Sequence


if TYPE_CHECKING:
    from .._base.documents import NpuUser

_GROUP = re.compile(r"^(?:0:|\d+:name=systemd):(/.*)$", re.MULTILINE)
_CONTAINER = re.compile(r"(?:(.+)-)?([0-9a-f]{64})(?:\.scope)?\Z")
_ENGINES = {"docker": "docker", "libpod": "podman", "libpod-payload": "podman", "cri-containerd": "containerd", "nerdctl": "containerd"}
_ENGINES["crio"] = "crio"
_PODS = re.compile(r"(?:[\w.-]+-)?kubepods(?:-[\w.-]+)?\Z")
"""The kubelet's group of all pods and those below it, without ``.slice``; a cgroup root of its own comes before with a hyphen."""
_CRI = ("cri-containerd-", "crio-")
"""How engines that serve the kubelet begin the names of containers."""
_CRI_NAMESPACE = "k8s.io"


class Group(NamedTuple):
    """A cgroup, with the meaning that :class:`_base.documents.NpuUser` gives to these names."""

    path: str
    kind: str
    unit: str | None = None
    engine: str = ""
    container: str | None = None


def path_of(text: str | None) -> str | None:
    """Return the cgroup path that systemd gives a process, from the text of ``/proc/<pid>/cgroup``; None if it has no such line."""
    match = _GROUP.search(text or "")
    return match.group(1) if match else None


def classified(path: str) -> Group | None:
    """Return what a cgroup belongs to: what systemd or an engine started, whatever groups it made below its own.

    None for the monitor of a container, which hands files on and uses none.
    """
    names = path.strip("/").split("/")
    is_pod = of_pods(names)
    pick = -1 if is_pod else 0  # a pod's own is the innermost: a node can itself be a container
    units = [place for place, name in enumerate(names) if name.endswith((".service", ".scope"))][pick:][:1]
    containers = [(place, match) for place, match in enumerate(map(_CONTAINER.match, names)) if match][pick:][:1]
    end = (units or [place for place, _match in containers] or [len(names) - 1])[0]
    if is_pod and containers:
        end = containers[0][0]
    engine, container = "", None
    for place, match in containers:
        begin, container = match.groups()
        if begin and begin.endswith("conmon"):
            return None
        engine = _ENGINES.get(begin or names[place - 1], "")
    unit = names[units[0]] if units else None
    if is_pod:
        kind = "pod"
    elif container:
        kind = "container"
    elif names[0] == "user.slice":
        kind = "session"
    else:
        kind = "service" if unit and unit.endswith(".service") else "other"
    return Group("/" + "/".join(names[: end + 1]), kind, unit, engine, container)


def of_pods(names: Sequence[str]) -> bool:
    """Whether a cgroup, by the names of its path, is one of the kubelet's pods, or of a container that its engine runs for it."""
    slices = (name[: -len(".slice")] if name.endswith(".slice") else name for name in names if not name.endswith((".service", ".scope")))
    return any(map(_PODS.match, slices)) or any(name == _CRI_NAMESPACE or name.startswith(_CRI) for name in names)


def is_of_login(cgroup: str) -> bool:
    """Whether a cgroup is of somebody who is logged in, or of a rootless engine: it cannot move to a slice of the system."""
    return cgroup.startswith("/user.slice/")


def in_group(cgroup: str, unit: str) -> bool:
    """Whether a cgroup's path leads to a unit or below it."""
    return "/%s/" % unit in cgroup + "/"


def title_of(user: NpuUser) -> str:
    """Return how a user is called: ``container vllm``, ``vllm.service``, ``python3``."""
    return "container %s" % user["name"] if user["container"] else user["name"]


def processes_of(user: NpuUser) -> str:
    """Return a user's processes as a text: ``process 4711 python3``."""
    return "process " + listed(["%d %s" % (one["pid"], one["command"]) for one in user["processes"]])


def holders(users: Iterable[NpuUser], names: Collection[str], pids: Collection[int] = ()) -> str:
    """List the users that have devices (names below ``/dev``) open, '' if none is found. ``pids`` are known to use them."""
    held = []
    for user in users:
        holding = [one for one in user["processes"] if one["pid"] in pids or not set(names).isdisjoint(one["devices"])]
        if holding:
            text = processes_of({**user, "processes": holding})
            held.append(text if user["kind"] in ("session", "other") else "%s (%s)" % (title_of(user), text))
    return listed(held)


def listed(members: Sequence[str], between: str = ", ", most: int = 3) -> str:
    """Return the first members of a list, and how many more there are."""
    rest = " and %d more" % (len(members) - most) if len(members) > most else ""
    return between.join(members[:most]) + rest
