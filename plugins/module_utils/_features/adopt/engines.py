# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and memory nodes of containers, by their engines, which also write them down for the next start: docker, podman, CRI for pods.

Seen on docker 26.1 and podman 5.4: an empty set is accepted and changes nothing, so "none" is restored by a full list. docker refuses CPUs
that are not online. Podman 4.9 warns on standard error with every command on cgroup v1.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host, Result
from ..._kernel.masks import online
from ..._kernel.memory import nodes_with_memory
from ..._users.engines import CRI, stores
from ..._users.finding import members_of
from .cri import Runtime

ENGINES = ("docker", "podman", CRI)
Sets = Dict[str, str]
"""Cpulists by ``cpus`` and ``mems``, '' where an engine has none."""
_OTHER_DAEMON = "does '%s' talk to another daemon (DOCKER_HOST, docker context)?"
_FORM = "{{.Id}} {{.HostConfig.CpusetCpus}}/{{.HostConfig.CpusetMems}}"


class Engines:
    """The engines of a host in one run. One that does not answer in time is not asked again: every call would take that long."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._silent: dict[str, str] = {}
        self._expected: dict[str, set[str]] = {}
        self._known: dict[str, Sets] = {}
        self.runtime = Runtime(host)

    def expect(self, containers: Iterable[tuple[str, str]]) -> None:
        """Note containers, ``(engine, id)``: the first query of an engine is about all of its containers."""
        for engine, container in containers:
            self._expected.setdefault(engine, set()).add(container)

    def _look(self, engine: str, container: str) -> None:
        if engine == CRI:  # one call per container
            described = self._ask(engine, self.runtime.described, container)
            self._known.update({container: described.sets} if described else {})
            return
        asked = sorted(self._expected[engine] - set(self._known))
        try:
            answer = self._run(engine, "container", "inspect", "--format", _FORM, *asked).answer
        except CommandError:
            return
        for line in answer.splitlines():
            container, _blank, sets = line.partition(" ")
            cpus, slash, mems = sets.partition("/")
            if container in asked and slash:
                self._known[container] = {"cpus": compress(expand(cpus, "CpusetCpus")), "mems": compress(expand(mems, "CpusetMems"))}

    def sets_of(self, engine: str, container: str, group: str) -> Sets | None:
        """Return the sets that an engine has of a container, None where the container is gone: no process is in its group, and neither its
        engine nor the store of that knows it.

        Raises ``ValueError`` or :class:`CommandError` where the engine does not say.
        """
        self.expect([(engine, container)])
        if container not in self._known:
            self._look(engine, container)
        if container in self._known:
            return self._known[container]
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
        self._known.pop(container, None)
        if engine == CRI:
            self._ask(engine, self.runtime.update, container, wanted)
            return
        result = self._run(engine, "update", *(word for kind, values in wanted.items() for word in ("--cpuset-" + kind, values)), container)
        if result.rc:
            raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200]))

    def _run(self, engine: str, *words: str) -> Result:
        result: Result = self._ask(engine, self.host.run, [engine, *words])
        return result

    def _ask(self, engine: str, function: Callable[..., Any], *arguments: Any) -> Any:
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
    found = nodes_with_memory(host) if kind == "mems" else online(host)
    return not values or found <= set(expand(values))
