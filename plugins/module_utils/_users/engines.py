# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What container engines and systemd keep in files about containers: their names, and the devices that they may open."""

from __future__ import annotations

import os
import re
from typing import Any, Iterator, Mapping

from .._host.host import Host
from .._kernel.machine import CGROUPS
from .._base.cpulist import expand
from .._base.outside import json_of
from .._kernel.machine import slice_path
from .groups import Group, classified

DOCKER = "/var/lib/docker/containers"
PODMAN = "/var/lib/containers/storage/overlay-containers/containers.json"
SCOPES = "/run/systemd/transient"
_NAME = re.compile(r"/?([A-Za-z0-9][\w.-]*)\Z")
_ALLOWED = re.compile(r"^DeviceAllow=/dev/(?:char/(\d{1,9}):(\d{1,9})|((?:v?davinci|nvidia)\d+))\b", re.MULTILINE)
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
        rows = _document(host, PODMAN, list)
        names = [row.get("names") for row in rows if isinstance(row, dict) and row.get("id") == container]
        name = names[0][0] if names and isinstance(names[0], list) and names[0] else None
    match = _NAME.match(name) if isinstance(name, str) else None
    return match.group(1) if match else container[:12]


def stores(host: Host, engine: str, container: str) -> bool:
    """Whether an engine has a container in its files, running or not, whatever its program can be asked."""
    if engine == "docker":
        return host.exists("%s/%s" % (DOCKER, container))
    return any(isinstance(row, dict) and row.get("id") == container for row in _document(host, PODMAN, list))


def allowed(host: Host, files: Mapping[int, str]) -> Iterator[tuple[Group, set[str]]]:
    """Yield the containers that run and were given devices: their group, and the names of the devices.

    systemd has the devices of a scope (``DeviceAllow=``), docker those of each container (``hostconfig.json``). One with all devices
    (``--privileged``) is given none in particular. ``files`` is a result of :func:`devices.numbers`.
    """
    for scope in host.names(SCOPES, "*-*.scope"):
        match = _SLICE.search(host.read("%s/%s" % (SCOPES, scope)) or "")
        group = classified("%s/%s" % (slice_path(match.group(1) if match else "system.slice"), scope))
        if group and group.container:
            texts = [host.read("%s/%s.d/%s" % (SCOPES, scope, name)) or "" for name in host.names("%s/%s.d" % (SCOPES, scope), "*.conf")]
            rules = [rule for text in texts for rule in _ALLOWED.findall(text)]
            found = {files.get(os.makedev(int(major), int(minor))) if major else name for major, minor, name in rules}
            yield group, {name for name in found if name} | _given(host, group)
    for top in ("", "/systemd"):
        for container in host.names("%s%s/docker" % (CGROUPS, top), "*"):
            group = classified("/docker/" + container) if _ID.match(container) else None
            if group:
                yield group, _given(host, group)


def _given(host: Host, group: Group) -> set[str]:
    """Return the devices that docker was told to give a container."""
    if group.engine != "docker":
        return set()
    settings = _document(host, "%s/%s/hostconfig.json" % (DOCKER, group.container))
    devices = settings.get("Devices")
    paths = [str(row.get("PathOnHost")) for row in devices if isinstance(row, dict)] if isinstance(devices, list) else []
    found = {path[5:] for path in paths if re.match(r"/dev/(v?davinci|nvidia)\d+\Z", path)}
    return found if settings.get("Runtime") in _RUNC else found | _asked_for(host, group)


def _asked_for(host: Host, group: Group) -> set[str]:
    """Return the devices that a container's environment asks Ascend Docker Runtime for, by physical ids; no other runtime reads that."""
    config = _document(host, "%s/%s/config.v2.json" % (DOCKER, group.container)).get("Config")
    words = config.get("Env") if isinstance(config, dict) else None
    found = [match.group(1) for match in map(_VISIBLE.match, map(str, words if isinstance(words, list) else ())) if match]
    try:
        numbers = expand(_CHIP.sub("", found[-1])) if found else []
    except ValueError:
        return set()
    return {"davinci%d" % number for number in numbers} if len(numbers) <= _MOST else set()


def _document(host: Host, path: str, kind: type = dict) -> Any:
    """Return what a JSON file says, as far as it can be read and is of a kind."""
    try:
        found = json_of(host.read(path) or "null")
    except ValueError:
        found = None
    return found if isinstance(found, kind) else kind()
