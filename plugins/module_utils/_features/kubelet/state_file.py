# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's ``cpu_manager_state``: what it says, whether its checksum is right, and what does not fit together. Read only.

Source: Kubernetes ``pkg/kubelet/cm/cpumanager/state/checkpoint.go`` and ``policy_static.go``. Unknown keys are tolerated. The file is
written in two steps, so that an overlap or lost CPUs can be left behind (kubernetes issues 84783 and 136604).

1. ``entries`` map container ids to CPUs.
2. ``entries`` map pods and their containers to CPUs.
3. Kubernetes 1.36 with PodLevelResourceManagers: ``podEntries`` have the CPUs of whole pods besides. They are part of the checksum, even
   when there are none, so that older kubelets take the file for corrupted (kubernetes issue 139069).
4. Kubernetes 1.37: the same as JSON text in ``data`` with a ``dataChecksum`` of its own. Version 2 stands next to it, for older kubelets.
"""

from __future__ import annotations

import re
from typing import Iterator, Mapping, NamedTuple

from ..._base.outside import json_of
from ..._base.cpulist import compress, expand

FILE = "cpu_manager_state"
_DUMP = "(*state.%s){PolicyName:(string)%s DefaultCPUSet:(string)%s Entries:(%s)map[%s]%s Checksum:(checksum.Checksum)0}"
_POD_ENTRIES = " PodEntries:(state.PodCPUAssignments)map[%s]"
_POD_ENTRY = "%s:{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})map[%s]}}"
_NAME = "CPUManagerCheckpoint"
_TYPES = {1: "map[string]string", 2: "map[string]map[string]string", 3: "map[string]map[string]string"}


class State(NamedTuple):
    """What a state file says.

    ``default_cpus`` and the values of ``exclusive`` (by ``pod/container``, in version 1 by the container id, and by ``pod`` for those that
    the other containers of a pod share) are cpulists. ``version`` is 1 to 4, or None where it can be 1 or 2; ``checksum`` True, False, or
    None where it is not verified. ``problems`` are sentences on what no kubelet would start with, whatever the machine. ``oldest`` is the
    first Kubernetes, such as ``(1, 36)``, that can read the file; None for any.
    """

    policy: str
    default_cpus: str
    exclusive: dict[str, str]
    version: int | None
    checksum: bool | None
    problems: list[str]
    oldest: tuple[int, int] | None = None


def parse(text: str, path: str = FILE) -> State:
    """Return the :class:`State` of a file's text. ``ValueError`` says what is wrong where it is not a state at all."""
    try:
        document = json_of(text)
        content = json_of(document["data"]) if "data" in document else document
        policy, default = content["policyName"], content.get("defaultCpuSet", content.get("defaultCPUSet"))
        if not isinstance(policy, str) or not isinstance(default, str):
            raise KeyError("policyName, defaultCpuSet")
        entries = content.get("entries") or {}
        pods = {str(pod): str(entry.get("cpuSet", "")) for pod, entry in (content.get("podEntries") or {}).items()}
        version = 4 if "data" in document else 3 if pods else _version(entries)
        exclusive: dict[str, str] = {}
        for owner, value in entries.items():
            inner = {"%s/%s" % (owner, name): cpulist for name, cpulist in value.items()} if isinstance(value, dict) else {owner: value}
            exclusive.update((name, str(cpulist)) for name, cpulist in inner.items())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError("%s is not a CPU manager state (%s: %s)" % (path, type(error).__name__, error))
    default_cpus = expand(default, "%s: defaultCpuSet" % path)
    sets = {name: expand(cpulist, "%s: %s" % (path, name)) for name, cpulist in sorted(exclusive.items())}
    for pod, cpulist in pods.items():
        shared = set(expand(cpulist, "%s: %s" % (path, pod))).difference(
            *(cpus for name, cpus in sets.items() if name.startswith(pod + "/"))
        )
        if shared:
            sets[pod] = sorted(shared)
    checksum = None
    if version == 4:
        checksum = document["dataChecksum"] == fnv1a("(string)" + document["data"]) if document.get("dataChecksum") else None
    elif document.get("checksum"):
        matching = []
        for number in {None: [1, 2, 3], 1: [1], 2: [2, 3], 3: [3]}[version]:
            names = [_NAME] + (["%sV%d" % (_NAME, number)] if number > 1 else [])  # its own, and the one that all versions had first
            if document["checksum"] in [fnv1a(dump(policy, default, entries, number, pods, name)) for name in names]:
                matching.append(number)
        checksum = bool(matching)
        version = 3 if matching == [3] else version
    oldest = (1, 36) if version == 3 else (1, 37) if version == 4 and "policyName" not in document else None
    cpulists = {name: compress(cpus) for name, cpus in sets.items()}
    state = State(policy, compress(default_cpus), cpulists, version, checksum, [], oldest)
    return state._replace(problems=list(_problems(state, path)))


def _version(entries: Mapping[str, object]) -> int | None:
    kinds = {isinstance(value, dict) for value in entries.values()}
    if len(kinds) > 1:
        raise ValueError("entries mix versions 1 and 2")
    return None if not kinds else 2 if kinds.pop() else 1


def dump(
    policy: str, default: str, entries: Mapping[str, object], version: int = 2, pods: Mapping[str, str] | None = None, name: str = _NAME
) -> str:
    """Return the text that the kubelet hashes: Go's dump of the structure in one line, keys sorted, the checksum 0."""

    def listed(mapping: Mapping[str, object]) -> str:
        parts = ("%s:%s" % (key, "map[%s]" % listed(value) if isinstance(value, dict) else value) for key, value in sorted(mapping.items()))
        return " ".join(parts)

    of_pods = (_POD_ENTRY % (pod, " ".join("%d:{}" % cpu for cpu in expand(cpus))) for pod, cpus in sorted((pods or {}).items()))
    further = _POD_ENTRIES % " ".join(of_pods) if version == 3 else ""
    return _DUMP % (name, policy, default, _TYPES[version], listed(entries or {}), further)


def fnv1a(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _problems(state: State, path: str) -> Iterator[str]:
    if state.checksum is False:
        yield "%s has a wrong checksum: it was edited or truncated, and kubelet refuses to start with it" % path
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
    assigned = default.union(*(expand(cpulist) for cpulist in state.exclusive.values()))
    missing = online - assigned - reserved
    if missing:
        yield "%s has lost CPUs %s: they are online, not reserved, and in no set" % (path, compress(missing))
    if assigned - online:
        yield "%s names CPUs %s, which are not online: the machine changed since kubelet started" % (path, compress(assigned - online))
    if strict and reserved & default:
        text = "%s shares CPUs %s, which strict-cpu-reservation keeps for the system: the reservation changed since kubelet started"
        yield text % (path, compress(reserved & default))
    given_away = reserved & (assigned - default)
    if given_away:
        yield "%s gives reserved CPUs %s to containers: the reservation changed since kubelet started" % (path, compress(given_away))


def against_kubelet(state: State, version: str | None, path: str = FILE) -> Iterator[str]:
    """Yield a sentence where a kubelet of that version, None for one that is not known, or an older one cannot read the file."""
    if state.oldest is None:
        return
    remove = "drain the node, stop kubelet, remove the file and memory_manager_state next to it, start kubelet"
    if version is not None and minor_of(version) < state.oldest:
        text = "%s is of version %s, which kubelet %s takes for corrupted and does not start with: %s"
        yield text % (path, state.version, version, remove)
    else:
        older = "kubelets before %d.%d" % state.oldest
        yield "%s is of version %s, which %s take for corrupted: for a downgrade %s" % (path, state.version, older, remove)


def minor_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version: ``1.36.2`` -> ``(1, 36)``."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)
