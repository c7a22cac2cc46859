# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and memory nodes of a container, by the program of its engine, which also writes them down for the container's next start.

Seen on docker 26.1 and podman 5.4: an empty set is accepted and changes nothing, so "none" is restored by a full list. docker refuses CPUs
that are not online.
"""

from __future__ import annotations

from typing import Mapping

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.masks import possible
from ..._kernel.memory import nodes_with_memory

ENGINES = ("docker", "podman")
_ONLINE = "/sys/devices/system/cpu/online"
_GONE = ("no such container", "no container with")


def sets_of(host: Host, engine: str, container: str) -> dict[str, str] | None:
    """Return the sets that an engine has of a container, ``{cpus, mems}`` with '' where it has none; None where the container is gone.

    Raises ``ValueError`` where the engine does not say.
    """
    form = "{{.HostConfig.CpusetCpus}}/{{.HostConfig.CpusetMems}}"
    result = host.run([engine, "container", "inspect", "--format", form, container])
    if result.rc == 0:
        cpus, _slash, mems = result.output.strip().partition("/")
        return {"cpus": compress(expand(cpus, "CpusetCpus")), "mems": compress(expand(mems, "CpusetMems"))}
    if any(words in result.output.lower() for words in _GONE):
        return None
    raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200]))


def known(host: Host, engine: str) -> set[str]:
    """Return the containers that an engine has, running or not; none where it does not answer."""
    try:
        result = host.run([engine, "ps", "--all", "--quiet", "--no-trunc"])
    except CommandError:
        return set()
    return set(result.output.split()) if result.rc == 0 else set()


def are_all(host: Host, kind: str, values: str) -> bool:
    """Whether a set confines nothing: it is empty, or has all CPUs that are online, or all memory nodes."""
    found = nodes_with_memory(host) if kind == "mems" else set(expand(host.read(_ONLINE) or ""))
    return not values or found <= set(expand(values))


def update(host: Host, engine: str, container: str, sets: Mapping[str, str]) -> None:
    """Give a running container sets, cpulists by ``cpus`` and ``mems``. An empty one means all. Raises ``ValueError``."""
    everything = {"cpus": compress(possible(host)), "mems": compress(nodes_with_memory(host))}
    wanted = {kind: values or everything[kind] for kind, values in sets.items()}
    tries = [wanted] + ([] if sets.get("cpus", "-") else [dict(wanted, cpus=compress(expand(host.read(_ONLINE) or "")))])
    failure = ""
    for one in tries:
        result = host.run([engine, "update", *(word for kind, values in one.items() for word in ("--cpuset-" + kind, values)), container])
        if result.rc == 0:
            return
        failure = "'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200])
    raise ValueError(failure)
