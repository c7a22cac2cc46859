# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's ``cpu_manager_state``: what it says, whether its checksum is right, and what does not fit together. Read only.

Source: Kubernetes ``pkg/kubelet/cm/cpumanager/state/checkpoint.go`` and ``policy_static.go``. Version 1 maps container ids to CPUs, version
2 pods and their containers. Newer versions carry the same as JSON text in ``data`` with a ``dataChecksum`` of its own; unknown keys are
tolerated. The file is written in two steps, so that an overlap or lost CPUs can be left behind (kubernetes issues 84783 and 136604).

This module is private to the collection.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, NamedTuple

from .._cpulist import compress, expand

FILE = "cpu_manager_state"
_DUMP = "(*state.CPUManagerCheckpoint){PolicyName:(string)%s DefaultCPUSet:(string)%s Entries:(%s)map[%s] Checksum:(checksum.Checksum)0}"
_TYPES = {1: "map[string]string", 2: "map[string]map[string]string"}


class State(NamedTuple):
    """What a state file says.

    ``default_cpus`` and the values of ``exclusive`` (by ``pod/container``, in version 1 by the container id) are cpulists. ``version`` is
    1, 2, or None where both are possible; ``checksum`` True, False, or None where it is not verified. ``problems`` are sentences on what
    no kubelet would start with, whatever the machine.
    """

    policy: str
    default_cpus: str
    exclusive: dict[str, str]
    version: int | None
    checksum: bool | None
    problems: list[str]


def parse(text: str, path: str = FILE) -> State:
    """Return the :class:`State` of a file's text. ``ValueError`` says what is wrong where it is not a state at all."""
    try:
        state = json.loads(text)
        content, checksum = _content(state)
        policy, default = content["policyName"], content.get("defaultCpuSet", content.get("defaultCPUSet"))
        if not isinstance(policy, str) or not isinstance(default, str):
            raise KeyError("policyName, defaultCpuSet")
        entries = content.get("entries") or {}
        version = _version(entries)
        exclusive = _flat(entries)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("%s is no CPU manager state (%s: %s)" % (path, type(error).__name__, error))
    default_cpus = expand(default, "%s: defaultCpuSet" % path)
    sets = {name: expand(cpulist, "%s: %s" % (path, name)) for name, cpulist in sorted(exclusive.items())}
    if checksum is None and state.get("checksum") and "podEntries" not in state:
        possible = [version] if version else [2, 1]
        checksum = state["checksum"] in [fnv1a(dump(policy, default, entries, number)) for number in possible]
    found = State(policy, compress(default_cpus), {name: compress(cpus) for name, cpus in sets.items()}, version, checksum, [])
    return found._replace(problems=list(_problems(found, path)))


def _content(state: dict[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """Return where the settings are, and whether the checksum of that is right (None: not verified yet)."""
    if "data" not in state or "policyName" in state:
        return state, None
    wanted = state.get("dataChecksum")
    return json.loads(state["data"]), None if not wanted else wanted == data_checksum(state["data"])


def _version(entries: Mapping[str, object]) -> int | None:
    kinds = {isinstance(value, dict) for value in entries.values()}
    if len(kinds) > 1:
        raise ValueError("entries mix versions 1 and 2")
    return None if not kinds else 2 if kinds.pop() else 1


def _flat(entries: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pod, containers in entries.items():
        if isinstance(containers, dict):
            found.update(("%s/%s" % (pod, name), str(cpulist)) for name, cpulist in containers.items())
        else:
            found[pod] = str(containers)
    return found


def dump(policy: str, default: str, entries: Mapping[str, object], version: int = 2) -> str:
    """Return the text that the kubelet hashes: Go's dump of the structure in one line, keys sorted, the checksum 0."""

    def listed(mapping: Mapping[str, object]) -> str:
        parts = ("%s:%s" % (key, "map[%s]" % listed(value) if isinstance(value, dict) else value) for key, value in sorted(mapping.items()))
        return " ".join(parts)

    return _DUMP % (policy, default, _TYPES[version], listed(entries or {}))


def data_checksum(data: str) -> int:
    """Return the checksum of the field ``data`` of newer versions."""
    return fnv1a("(string)" + data)


def fnv1a(text: str) -> int:
    """Return the 32-bit FNV-1a hash of a text."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _problems(state: State, path: str) -> Iterator[str]:
    if state.checksum is False:
        yield "%s does not have the checksum of what it says: it was edited or truncated, and kubelet refuses to start with it" % path
    if state.policy == "static" and not state.default_cpus:
        yield "%s has an empty default set under the static policy, with which kubelet refuses to start" % path
    owner = dict.fromkeys(expand(state.default_cpus), "the shared pool")
    for name, cpulist in state.exclusive.items():
        cpus = set(expand(cpulist))
        for other in sorted({owner[cpu] for cpu in cpus if cpu in owner}):
            common = compress(cpu for cpu in cpus if owner.get(cpu) == other)
            yield "%s gives CPUs %s to %s and to %s" % (path, common, name, other)
        owner.update(dict.fromkeys(cpus, name))


def against_machine(state: State, online: set[int], reserved: set[int], strict: bool = False, path: str = FILE) -> Iterator[str]:
    """Yield sentences on what does not fit the machine's online CPUs and the reserved ones, both as sets.

    ``strict`` is the option strict-cpu-reservation: reserved CPUs must then be outside the default set, else inside. ``reserved`` may be
    empty where the kubelet chooses them.
    """
    default = set(expand(state.default_cpus))
    known = default.union(*(expand(cpulist) for cpulist in state.exclusive.values()))
    missing = online - known - reserved
    if missing:
        yield "%s has lost CPUs %s: they are online, not reserved, and in no set" % (path, compress(missing))
    if known - online:
        yield "%s names CPUs %s, which are not online: the machine changed since kubelet started" % (path, compress(known - online))
    if strict and reserved & default:
        yield "%s shares CPUs %s, which strict-cpu-reservation keeps for the system: the reservation changed since kubelet started" % (
            path,
            compress(reserved & default),
        )
    given_away = reserved & (known - default)
    if given_away:
        yield "%s gives reserved CPUs %s to containers: the reservation changed since kubelet started" % (path, compress(given_away))
