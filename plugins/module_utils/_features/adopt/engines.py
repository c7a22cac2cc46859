# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and memory nodes of containers, by their engines, which also write them down for the next start: docker, podman, and for pods
the interface that the kubelet uses, CRI (``runtime.v1`` of kubernetes/cri-api).

Seen on docker 26.1, podman 5.4 and containerd 1.6.20: an empty set is accepted and changes nothing, so "none" is restored by a full list.
docker refuses CPUs that are not online. A container of containerd that has not started accepts them, and does not start with them. Podman
4.9 warns on standard error with every command on cgroup v1.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple, TypeVar

from ..._base.cpulist import compress, expand
from ..._base.outside import json_of
from ..._host.grpc import NOT_FOUND, UNIMPLEMENTED, StatusError, Value, call, decoded, encoded
from ..._host.host import CommandError, Host
from ..._kernel.masks import online
from ..._kernel.memory import nodes_with_memory
from ..._users.engines import CRI, at, stores
from ..._users.finding import members_of

T = TypeVar("T")
ENGINES = ("docker", "podman", CRI)
SOCKETS = ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock")
_ELSEWHERE = (NOT_FOUND, UNIMPLEMENTED)
"""The latter comes from the containerd of docker, which serves no kubelet."""
_FIELDS = {"cpus": 6, "mems": 7}
"""Of LinuxContainerResources."""
Sets = Dict[str, str]
"""Cpulists by ``cpus`` and ``mems``, '' where an engine has none."""
_OTHER_DAEMON = "does '%s' talk to another daemon (DOCKER_HOST, docker context)?"
_FORM = "{{.Id}} {{.HostConfig.CpusetCpus}}/{{.HostConfig.CpusetMems}}"


class Described(NamedTuple):
    """A container of a pod: whether it waits for its start, its sets, and its specification for the low-level runtime (OCI)."""

    waits: bool
    sets: Sets
    spec: Mapping[str, Any]


def described(host: Host, container: str) -> Described | None:
    """Return what the runtimes of a host's pods know of a container, None where none has it.

    Raises :class:`CommandError` where none answers, ``ValueError`` where one refuses.
    """
    answer = _call(host, "ContainerStatus", {1: container, 2: 1})
    return None if answer is None else _read(decoded(answer))


def _update(host: Host, container: str, sets: Mapping[str, str]) -> None:
    resources = encoded({_FIELDS[kind]: values for kind, values in sets.items()})
    if _call(host, "UpdateContainerResources", {1: container, 2: resources}) is None:
        raise ValueError("no container runtime has container %s" % container[:12])


def _call(host: Host, method: str, fields: dict[int, Value]) -> bytes | None:
    sockets = [path for path in SOCKETS if host.exists(path)]
    if not sockets:
        raise ValueError("no container runtime of pods is known: none of %s exists" % ", ".join(SOCKETS))
    for path in sockets:
        try:
            return call(host.path(path), "/runtime.v1.RuntimeService/" + method, encoded(fields), host.timeout)
        except StatusError as error:
            if error.status not in _ELSEWHERE:
                raise
    return None


def _inner(fields: Mapping[int, Any], number: int) -> bytes:
    value = fields.get(number, [b""])[0]
    return value if isinstance(value, bytes) else b""


def _read(answer: Mapping[int, Any]) -> Described:
    """Return what an answer says. Raises :class:`CommandError` where it has no specification, which is not an empty one."""
    state = decoded(_inner(answer, 1)).get(3, [0])[0]
    fields = [decoded(field) for field in answer.get(2, []) if isinstance(field, bytes)]
    texts = {_inner(field, 1): _inner(field, 2).decode("utf-8", "replace") for field in fields}
    info = json_of(texts.get(b"info", "null"))
    if not (isinstance(info, dict) and isinstance(info.get("runtimeSpec"), dict)):
        raise CommandError("the container runtime describes a container without its runtimeSpec")
    spec = at(info, "runtimeSpec")
    cpu = at(at(at(spec, "linux"), "resources"), "cpu")
    sets = {kind: compress(expand(str(cpu.get(kind) or ""), kind)) for kind in _FIELDS}
    return Described(state == 0, sets, spec)


class Engines:
    """The engines of a host in one run. One that does not answer in time is not asked again: every call would take that long."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._silent: dict[str, str] = {}
        self._expected: dict[str, set[str]] = {}
        self._sets: dict[str, Sets] = {}

    def expect(self, containers: Iterable[tuple[str, str]]) -> None:
        """Note containers, ``(engine, id)``: the first query of an engine is about all of its containers."""
        for engine, container in containers:
            self._expected.setdefault(engine, set()).add(container)

    def _look(self, engine: str, container: str) -> None:
        if engine == CRI:  # one call per container
            description = self._ask(engine, described, self.host, container)
            self._sets.update({container: description.sets} if description else {})
            return
        asked = sorted(self._expected[engine] - set(self._sets))
        try:
            answer = self._ask(engine, self.host.run, [engine, "container", "inspect", "--format", _FORM, *asked]).answer
        except CommandError:
            return
        for line in answer.splitlines():
            container, _blank, sets = line.partition(" ")
            cpus, slash, mems = sets.partition("/")
            if container in asked and slash:
                self._sets[container] = {"cpus": compress(expand(cpus, "CpusetCpus")), "mems": compress(expand(mems, "CpusetMems"))}

    def sets_of(self, engine: str, container: str, group: str) -> Sets | None:
        """Return the sets that an engine has of a container, None where the container is gone: no process is in its group, and neither its
        engine nor the store of that knows it.

        Raises ``ValueError`` or :class:`CommandError` where the engine does not say.
        """
        self.expect([(engine, container)])
        if container not in self._sets:
            self._look(engine, container)
        if container in self._sets:
            return self._sets[container]
        if not members_of(self.host, group) and not stores(self.host, engine, container):
            return None
        if engine in self._silent:
            raise CommandError(self._silent[engine])
        other = "is the socket of its runtime none of these?" if engine == CRI else _OTHER_DAEMON % engine
        raise ValueError("%s does not know container %s, which is there: %s" % (engine, container[:12], other))

    def update(self, engine: str, container: str, sets: Mapping[str, str]) -> None:
        """Give a container sets, cpulists by ``cpus`` and ``mems``. An empty one means all. Raises ``ValueError``."""
        everything = {"cpus": online(self.host), "mems": nodes_with_memory(self.host)}
        wanted = {kind: values or compress(everything[kind]) for kind, values in sets.items()}
        self._sets.pop(container, None)
        if engine == CRI:
            self._ask(engine, _update, self.host, container, wanted)
            return
        words = [word for kind, values in wanted.items() for word in ("--cpuset-" + kind, values)]
        result = self._ask(engine, self.host.run, [engine, "update", *words, container])
        if result.rc:
            raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200]))

    def _ask(self, engine: str, function: Callable[..., T], *arguments: Any) -> T:
        if engine in self._silent:
            raise CommandError(self._silent[engine])
        try:
            return function(*arguments)
        except CommandError as error:
            self._silent[engine] = str(error)
            raise


def program_of(engine: str) -> str:
    """Return the program by which an administrator changes a container of an engine."""
    return "crictl" if engine == CRI else engine


def are_all(host: Host, kind: str, values: str) -> bool:
    """Whether a set confines nothing: it is empty, or has all CPUs that are online, or all memory nodes."""
    everything = nodes_with_memory(host) if kind == "mems" else online(host)
    return not values or everything <= set(expand(values))
