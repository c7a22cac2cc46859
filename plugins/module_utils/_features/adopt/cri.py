# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of pods, through the interface that the kubelet uses, CRI: by ``crictl``, or by its socket where no crictl is installed.

Source: ``runtime.v1`` of kubernetes/cri-api. Seen on containerd 1.6.20: an empty set is accepted and changes nothing; a container that has
not started also accepts CPUs that are not online, and does not start with them.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ..._base.cpulist import compress, expand
from ..._base.outside import json_of
from ..._host.grpc import NOT_FOUND, UNIMPLEMENTED, StatusError, Value, call, decoded, encoded
from ..._host.host import CommandError, Host

SOCKETS = ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock")
_ELSEWHERE = (NOT_FOUND, UNIMPLEMENTED)
"""The latter comes from the containerd of docker, which serves no kubelet."""
CREATED = "CONTAINER_CREATED"
_STATES = (CREATED, "CONTAINER_RUNNING", "CONTAINER_EXITED", "CONTAINER_UNKNOWN")
_SERVICE = "/runtime.v1.RuntimeService/"
_FIELDS = {"cpus": 6, "mems": 7}
"""Of LinuxContainerResources."""


class Described(NamedTuple):
    """A container: its state, its sets (cpulists by ``cpus`` and ``mems``), and its specification for the low-level runtime (OCI)."""

    state: str
    sets: dict[str, str]
    spec: Mapping[str, Any]


class Runtime:
    """The runtimes of a host's pods. Raises :class:`CommandError` where none answers, ``ValueError`` where it refuses."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.program = host.find_program("crictl", ())
        self.sockets = [path for path in SOCKETS if host.exists(path)]

    def described(self, container: str) -> Described | None:
        """Return what is known of a container, None where no runtime has it."""
        for path in self.sockets:
            try:
                return _read(*(self._by_crictl(path, container) if self.program else self._by_socket(path, container)))
            except StatusError as error:
                if error.status not in _ELSEWHERE:
                    raise
        if not self.sockets:
            raise ValueError("no container runtime of pods is known: none of %s exists" % ", ".join(SOCKETS))
        return None

    def update(self, container: str, sets: Mapping[str, str]) -> None:
        """Give a container sets."""
        for path in self.sockets:
            try:
                if self.program:
                    words = [word for kind, values in sets.items() for word in ("--cpuset-" + kind, values)]
                    self._crictl(path, "update", *words, container)
                else:
                    resources = encoded({_FIELDS[kind]: values for kind, values in sets.items()})
                    self._call(path, "UpdateContainerResources", {1: container, 2: resources})
                return
            except StatusError as error:
                if error.status not in _ELSEWHERE or path == self.sockets[-1]:
                    raise
        raise ValueError("no container runtime has container %s" % container[:12])

    def _crictl(self, path: str, *words: str) -> str:
        result = self.host.run([self.program or "", "--runtime-endpoint", "unix://" + path, *words])
        if result.rc:
            text = "'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()[:200])
            raise StatusError(text, NOT_FOUND if "NotFound" in result.output or "not found" in result.output else None)
        return result.answer

    def _by_crictl(self, path: str, container: str) -> tuple[str, Any]:
        found = _mapping(json_of(self._crictl(path, "inspect", "--output", "json", container)))
        return str(_mapping(found.get("status")).get("state")), found.get("info")

    def _by_socket(self, path: str, container: str) -> tuple[str, Any]:
        answer = decoded(self._call(path, "ContainerStatus", {1: container, 2: 1}))
        status = decoded(_inner(answer, 1))
        state = _number(status, 3)
        pairs = [decoded(pair) for pair in answer.get(2, []) if isinstance(pair, bytes)]
        texts = {_inner(pair, 1): _inner(pair, 2).decode("utf-8", "replace") for pair in pairs}
        return _STATES[min(state, len(_STATES) - 1)], json_of(texts.get(b"info", "null"))

    def _call(self, path: str, method: str, fields: dict[int, Value]) -> bytes:
        return call(self.host.path(path), _SERVICE + method, encoded(fields), self.host.timeout)


def _inner(fields: Mapping[int, Any], number: int) -> bytes:
    value = fields.get(number, [b""])[0]
    return value if isinstance(value, bytes) else b""


def _number(fields: Mapping[int, Any], number: int) -> int:
    value = fields.get(number, [0])[0]
    return value if isinstance(value, int) else -1


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read(state: str, info: Any) -> Described:
    """Return what a description says. Raises :class:`CommandError` where it has no specification, which is not an empty one."""
    spec = _mapping(info).get("runtimeSpec")
    if not isinstance(spec, dict):
        raise CommandError("the container runtime describes a container without its runtimeSpec")
    cpu = _mapping(_mapping(_mapping(spec.get("linux")).get("resources")).get("cpu"))
    sets = {kind: compress(expand(str(cpu.get(kind) or ""), kind)) for kind in _FIELDS}
    return Described(state, sets, spec)
