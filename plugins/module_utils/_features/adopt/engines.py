# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and memory nodes of containers, by the programs of their engines, which also write them down for the next start.

Seen on docker 26.1 and podman 5.4: an empty set is accepted and changes nothing, so "none" is restored by a full list. docker refuses CPUs
that are not online. Podman 4.9 warns on standard error with every command on cgroup v1.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host, Result
from ..._kernel.masks import possible
from ..._kernel.memory import nodes_with_memory
from ..._users.engines import stores
from ..._users.finding import members_of

ENGINES = ("docker", "podman")
Sets = Dict[str, str]
"""Cpulists by ``cpus`` and ``mems``, '' where an engine has none."""
_ONLINE = "/sys/devices/system/cpu/online"
_FORM = "{{.Id}} {{.HostConfig.CpusetCpus}}/{{.HostConfig.CpusetMems}}"


class Engines:
    """The engines of a host in one run. One that does not answer in time is not asked again: every call would take that long."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._silent: dict[str, str] = {}
        self._expected: dict[str, set[str]] = {}
        self._known: dict[str, Sets] = {}

    def expect(self, containers: Iterable[tuple[str, str]]) -> None:
        """Note containers, ``(engine, id)``: the first query of an engine is about all of its containers."""
        for engine, container in containers:
            self._expected.setdefault(engine, set()).add(container)

    def _look(self, engine: str) -> None:
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
            self._look(engine)
        if container in self._known:
            return self._known[container]
        if not members_of(self.host, group) and not stores(self.host, engine, container):
            return None
        if engine in self._silent:
            raise CommandError(self._silent[engine])
        raise ValueError(
            "%s does not know container %s, which is there: does '%s' talk to another daemon (DOCKER_HOST, docker context)?"
            % (engine, container[:12], engine)
        )

    def update(self, engine: str, container: str, sets: Mapping[str, str]) -> None:
        """Give a container sets, cpulists by ``cpus`` and ``mems``. An empty one means all. Raises ``ValueError``."""
        everything = {"cpus": compress(possible(self.host)), "mems": compress(nodes_with_memory(self.host))}
        wanted = {kind: values or everything[kind] for kind, values in sets.items()}
        tries = [wanted] + ([] if sets.get("cpus", "-") else [dict(wanted, cpus=compress(expand(self.host.read(_ONLINE) or "")))])
        failure = ""
        self._known.pop(container, None)
        for one in tries:
            result = self._run(
                engine, "update", *(word for kind, values in one.items() for word in ("--cpuset-" + kind, values)), container
            )
            if result.rc == 0:
                return
            failure = "'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200])
        raise ValueError(failure)

    def _run(self, engine: str, *words: str) -> Result:
        if engine in self._silent:
            raise CommandError(self._silent[engine])
        try:
            return self.host.run([engine, *words])
        except CommandError as error:
            self._silent[engine] = str(error)
            raise


def are_all(host: Host, kind: str, values: str) -> bool:
    """Whether a set confines nothing: it is empty, or has all CPUs that are online, or all memory nodes."""
    found = nodes_with_memory(host) if kind == "mems" else set(expand(host.read(_ONLINE) or ""))
    return not values or found <= set(expand(values))
