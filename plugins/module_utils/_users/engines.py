# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What container engines and systemd keep in files about containers: their names, and the devices that they may open.

Of a container of a pod, containerd and CRI-O keep the specification that its low-level runtime gets (OCI ``config.json``).
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterator, Mapping

from .._host.host import Host
from .._kernel.machine import CGROUPS
from .._base.cpulist import expand
from .._base.device_files import NAME
from .._base.outside import json_of
from .._kernel.machine import slice_path
from .groups import Group, classified

DOCKER = "/var/lib/docker/containers"
PODMAN = "/var/lib/containers/storage/overlay-containers/containers.json"
SCOPES = "/run/systemd/transient"
CRI = "cri"
"""The engine of pods, by the interface that the kubelet uses, whichever program that is."""
BUNDLES = (
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
    "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
    "/run/containers/storage/overlay-containers/%s/userdata/config.json",
)
_CRI_STORES = tuple(
    folder + "/io.containerd.grpc.v1.cri/containers/%s" for folder in ("/var/lib/containerd", "/var/lib/rancher/k3s/agent/containerd")
)
_POD = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name")
_POD_OF_CRIO = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name")
_NAME = re.compile(r"/?([A-Za-z0-9][\w.-]*)\Z")
_ALLOWED = re.compile(r"^DeviceAllow=/dev/(?:char/(\d{1,9}):(\d{1,9})|(%s))\b" % NAME, re.MULTILINE)
_DEVICE = re.compile(r"/dev/(%s)\Z" % NAME)
_SLICE = re.compile(r"^Slice=([\w.:\\-]+\.slice)$", re.MULTILINE)
_RUNC = (None, "", "runc", "io.containerd.runc.v2")
_MOST = 64
"""No host has more NPUs."""
_VISIBLE = re.compile(r"ASCEND_VISIBLE_DEVICES=(.+)\Z")
_CHIP = re.compile(r"\bAscend\w*-(?=\d)")
"""Before a physical id in the long form: ``Ascend910-4``."""
_ID = re.compile(r"[0-9a-f]{64}\Z")


def name_of(host: Host, group: Group) -> str:
    """Return the name of a container: the one that its engine gave it, else its short id."""
    container = group.container or ""
    name: object = None
    if group.engine == "docker":
        name = _document(host, "%s/%s/config.v2.json" % (DOCKER, container)).get("Name")
    elif group.engine == "podman":
        names = [row.get("names") for row in _members(_document(host, PODMAN, list)) if row.get("id") == container]
        name = names[0][0] if names and isinstance(names[0], list) and names[0] else None
    elif group.kind == "pod":
        return name_in_pod(bundle(host, container)) or container[:12]
    match = _NAME.match(name) if isinstance(name, str) else None
    return match.group(1) if match else container[:12]


def name_in_pod(spec: Mapping[str, Any]) -> str:
    """Return ``namespace/pod/container`` by a specification, '' where it does not say."""
    notes = at(spec, "annotations")
    candidates = [[str(notes.get(key) or "") for key in keys] for keys in (_POD, _POD_OF_CRIO)]
    return next(("/".join(names) for names in candidates if all(map(_NAME.match, names))), "")


def bundle(host: Host, container: str) -> Mapping[str, Any]:
    """Return the specification with which a container of a pod was started, an empty one if there is none."""
    places = [path % container for path in BUNDLES if _ID.match(container)]
    return next((spec for spec in (_document(host, place) for place in places) if spec), {})


def stores(host: Host, engine: str, container: str) -> bool:
    """Whether an engine has a container in its files, running or not, whatever its program can be asked."""
    if engine == "docker":
        return host.exists("%s/%s" % (DOCKER, container))
    if engine == CRI and any(host.exists(folder % container) for folder in _CRI_STORES):
        return True
    return any(row.get("id") == container for row in _members(_document(host, PODMAN, list)))


def allowed(host: Host, files: Mapping[int, str]) -> Iterator[tuple[Group, set[str]]]:
    """Yield the containers that run and were given devices: their group, and the names of the devices.

    systemd has the devices of a scope (``DeviceAllow=``), docker those of each container (``hostconfig.json``), and the runtimes of pods
    the specification of each. One with all devices (``--privileged``) is given none in particular. ``files`` is a result of
    :func:`devices.numbers`.
    """
    for path in BUNDLES:
        for container in host.names(path.partition("/%s")[0]):
            spec = bundle(host, container)
            group = classified(group_in(spec)) if spec else None
            if group and group.kind == "pod" and group.container == container:
                yield group, given_by(spec, files)
    for scope in host.names(SCOPES, "*-*.scope"):
        match = _SLICE.search(host.read("%s/%s" % (SCOPES, scope)) or "")
        group = classified("%s/%s" % (slice_path(match.group(1) if match else "system.slice"), scope))
        if group and group.container:
            yield group, allowed_to(host, scope, files) | _given(host, group)
    for top in ("", "/systemd"):
        for container in host.names("%s%s/docker" % (CGROUPS, top), "*"):
            group = classified("/docker/" + container) if _ID.match(container) else None
            if group:
                yield group, _given(host, group)


def allowed_to(host: Host, scope: str, files: Mapping[int, str]) -> set[str]:
    texts = [host.read("%s/%s.d/%s" % (SCOPES, scope, name)) or "" for name in host.names("%s/%s.d" % (SCOPES, scope), "*.conf")]
    rules = [rule for text in texts for rule in _ALLOWED.findall(text)]
    allowed_names = {files.get(os.makedev(int(major), int(minor))) if major else name for major, minor, name in rules}
    return {name for name in allowed_names if name}


def group_in(spec: Mapping[str, Any]) -> str:
    """Return the path of the control group that a specification asks for: itself, or of systemd as ``slice:prefix:name``."""
    path = str(at(spec, "linux").get("cgroupsPath") or "")
    parts = path.split(":")
    if len(parts) == 3 and parts[0].endswith(".slice"):
        return "%s/%s-%s.scope" % (slice_path(parts[0]), parts[1], parts[2])
    return path


def listed_in(spec: Mapping[str, Any], files: Mapping[int, str]) -> set[str]:
    """Return the accelerators' device files that a specification lists, by their names on the host."""
    listed = set()
    for row in _members(at(spec, "linux").get("devices")):
        match, numbers = _DEVICE.match(str(row.get("path"))), [row.get("major"), row.get("minor")]
        if files:
            major, minor = (number if isinstance(number, int) and 0 <= number < 1 << 20 else 0 for number in numbers)
            listed.add(files.get(os.makedev(major, minor)))
        elif match:
            listed.add(match.group(1))
    return {name for name in listed if name}


def given_by(spec: Mapping[str, Any], files: Mapping[int, str]) -> set[str]:
    """Return the devices that a specification gives a container: those it lists, or asks Ascend Docker Runtime for."""
    rules = _members(at(at(spec, "linux"), "resources").get("devices"))
    if any(rule.get("allow") and rule.get("major") is None and "r" in str(rule.get("access")) for rule in rules):
        return set()
    asked = _asked_for(at(spec, "process").get("env")) if "ascend-docker" in json.dumps(spec.get("hooks")) else set()
    return listed_in(spec, files) | asked


def at(outer: Any, key: str) -> Mapping[str, Any]:
    """Return an inner mapping, an empty one of anything else."""
    inner = outer.get(key) if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else {}


def _members(rows: Any) -> list[Mapping[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _given(host: Host, group: Group) -> set[str]:
    """Return the devices that docker was told to give a container."""
    if group.engine != "docker":
        return set()
    settings = _document(host, "%s/%s/hostconfig.json" % (DOCKER, group.container))
    matches = [_DEVICE.match(str(row.get("PathOnHost"))) for row in _members(settings.get("Devices"))]
    given = {match.group(1) for match in matches if match}
    config = at(_document(host, "%s/%s/config.v2.json" % (DOCKER, group.container)), "Config")
    return given if settings.get("Runtime") in _RUNC else given | _asked_for(config.get("Env"))


def _asked_for(words: Any) -> set[str]:
    """Return the devices that an environment asks Ascend Docker Runtime for, by physical ids; no other runtime reads that."""
    values = [match.group(1) for match in map(_VISIBLE.match, map(str, words if isinstance(words, list) else ())) if match]
    try:
        numbers = expand(_CHIP.sub("", values[-1])) if values else []
    except ValueError:
        return set()
    return {"davinci%d" % number for number in numbers} if len(numbers) <= _MOST else set()


def _document(host: Host, path: str, kind: type = dict) -> Any:
    """Return what a JSON file says, as far as it can be read and is of a kind."""
    try:
        document = json_of(host.read(path) or "null")
    except ValueError:
        document = None
    return document if isinstance(document, kind) else kind()
