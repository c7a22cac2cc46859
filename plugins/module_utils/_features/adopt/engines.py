# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU set of a container, by the program of its engine, which also writes it down for the container's next start.

Seen on docker 26.1 and podman 5.4: an empty set is accepted and changes nothing, so "none" is restored by a full list. docker refuses CPUs
that are not online.
"""

from __future__ import annotations

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.masks import possible

ENGINES = ("docker", "podman")
_ONLINE = "/sys/devices/system/cpu/online"
_GONE = ("no such container", "no container with")


def cpus_of(host: Host, engine: str, container: str) -> str | None:
    """Return the CPU set that an engine has of a container, '' where it has none; None where the container is gone.

    Raises ``ValueError`` where the engine does not say.
    """
    result = host.run([engine, "container", "inspect", "--format", "{{.HostConfig.CpusetCpus}}", container])
    if result.rc == 0:
        text = result.output.strip()
        return compress(expand(text, "CpusetCpus")) if text else ""
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


def are_all(host: Host, cpus: str) -> bool:
    """Whether a set confines nothing: it is empty, or has all CPUs that are online."""
    return not cpus or set(expand(host.read(_ONLINE) or "")) <= set(expand(cpus))


def update(host: Host, engine: str, container: str, cpus: str) -> None:
    """Give a running container a CPU set. An empty one means all CPUs. Raises ``ValueError`` where the engine refuses it."""
    online = compress(expand(host.read(_ONLINE) or ""))
    result = None
    for wanted in [cpus] if cpus else dict.fromkeys([compress(possible(host)), online]):
        result = host.run([engine, "update", "--cpuset-cpus", wanted, container])
        if result.rc == 0:
            return
    if result:
        raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200]))
