# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of the sections of previous.json. Nobody changes a host whose record has another one: it could not be restored."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict

from .._cpulist import expand
from .._outside import require_shape
from .files import FileState

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(service|slice|scope|timer|socket|target)\Z")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_MODE = re.compile(r"[0-7]{1,4}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_PROCESS = {"start": int, "boot": str, "title": str, "cpus": str, "threads": {str: str}}
_ADOPTED = {
    "services?": {str: {"npus": [list], "cpus": str, "folders": [str]}},
    "containers?": {str: {"engine": str, "name": str, "npus": [list], "cpus": str, "before": str}},
    "processes?": {str: _PROCESS},
}
_ENGINES = ("docker", "podman")


def check(name: str, data: Any) -> None:
    """Raise ``ValueError`` with what is wrong where a section is none of ours; a unit's name is the section of one that was stopped."""
    try:
        if name not in _CHECKS and not _UNIT.match(name):
            raise ValueError("it is unknown")
        checked: Callable[[Any], None] = _CHECKS.get(name, _check_unit)
        checked(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("%s: %s" % (type(error).__name__, error))


def _check_unit(data: dict[str, Any]) -> None:
    if not set(data) <= {"running", "enabled"} or not all(isinstance(value, bool) for value in data.values()):
        raise ValueError("it does not say whether the unit was running and enabled")


def _check_files(data: dict[str, Any]) -> None:
    for path, values in data.items():
        _check_path(path)
        FileState.from_record(values)


def _check_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError("'%s' is not an absolute path" % path)


def _check_paths(data: list[str]) -> None:
    _check_names(data)
    for path in data:
        _check_path(path)


def _check_names(data: list[str]) -> None:
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError("it is not a list of names")


def _check_interrupts(data: dict[str, Any]) -> None:
    for member in [data["functions"], data["workqueues"], data["threads"], *data["functions"].values()]:
        if not isinstance(member, dict):
            raise ValueError("it has no affinities by name")
    for member in [data["workqueues"], data["threads"], *data["functions"].values()]:
        for name, cpus in member.items():
            if not isinstance(cpus, (str, type(None))):
                raise ValueError("%s was on %r" % (name, cpus))
            expand(cpus or "", name)


def _check_tuning(data: dict[str, Any]) -> None:
    for path, value in data.items():
        _check_path(path)
        if not path.startswith(("/proc/sys/", "/sys/")) or not isinstance(value, str):
            raise ValueError("'%s' is not a setting" % path)


def _check_device_share(data: dict[str, Any]) -> None:
    if not isinstance(data.get("recover"), (bool, type(None))):
        raise ValueError("recover is %r" % data["recover"])
    for card, chips in data["chips"].items():
        if not all(_NUMBER.match(number) for number in [card] + list(chips)):
            raise ValueError("'%s' is not a card with chips" % card)
        if not all(isinstance(enabled, (bool, type(None))) for enabled in chips.values()):
            raise ValueError("card %s has chips that are neither on nor off" % card)
    for path, record in data.get("files", {}).items():
        _check_path(path)
        if record is not None:
            FileState.from_record(record)


def _check_layout(data: dict[str, Any]) -> None:
    _check_paths(data["folders"])
    for path, mode in data["modes"].items():
        _check_path(path)
        if not _MODE.match(mode):
            raise ValueError("'%s' has the permissions %r" % (path, mode))
    for path, digests in data["files"].items():
        _check_path(path)
        if not isinstance(digests, list) or not all(_DIGEST.match(digest) for digest in digests):
            raise ValueError("'%s' has no checksums" % path)


def _check_kubelet(data: dict[str, Any]) -> None:
    _check_path(data["path"])
    _check_paths(data["folders"])
    _check_paths(data.get("renamed", []))


def _check_adopted(data: dict[str, Any]) -> None:
    require_shape(data, _ADOPTED, "it")
    for unit, entry in data.get("services", {}).items():
        if not _UNIT.match(unit):
            raise ValueError("%r is not a unit" % unit)
        _check_paths(entry["folders"])
        for kind, number in entry["npus"]:
            if not isinstance(kind, str) or not isinstance(number, int):
                raise ValueError("%s has the NPU %r" % (unit, number))
    for container, entry in data.get("containers", {}).items():
        if not _DIGEST.match(container) or entry["engine"] not in _ENGINES:
            raise ValueError("%r of %r is not a container" % (container, entry["engine"]))
    processes = data.get("processes", {})
    for number in [*processes, *(number for entry in processes.values() for number in entry["threads"])]:
        if not _NUMBER.match(number):
            raise ValueError("%r is not a process" % number)
    for entry in [*data.get("services", {}).values(), *data.get("containers", {}).values(), *processes.values()]:
        for cpus in [entry["cpus"], entry.get("before", ""), *entry.get("threads", {}).values()]:
            expand(cpus, "cpus")


_CHECKS: Dict[str, Callable[[Any], None]] = {
    "adopt": _check_adopted,
    "device_share": _check_device_share,
    "files": _check_files,
    "folders": _check_paths,
    "interrupted": _check_paths,
    "interrupts": _check_interrupts,
    "kubelet": _check_kubelet,
    "metrics": _check_paths,
    "stopped": _check_names,
    "tuning": _check_tuning,
    "vnpu": _check_layout,
}
