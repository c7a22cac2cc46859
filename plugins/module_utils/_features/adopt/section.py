# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of what previous.json has of adopted work (:mod:`.record`)."""

from __future__ import annotations

import re
from typing import Any

from ..._base.cpulist import expand
from ..._base.outside import require_shape
from ..._state.sections import check_files, check_paths, is_number, is_unit

_CONTAINER = re.compile(r"[0-9a-f]{64}\Z")
_SETS: dict[str, Any] = {"cpus": str, "mems?": str, "given?": [{"cpus?": str, "mems?": str}], "npus": [list]}
_SHAPE = {
    "services?": {str: dict(_SETS, folders=[str], **{"foreign?": dict})},
    "containers?": {str: dict(_SETS, engine=str, name=str, before=str, group=str)},
    "processes?": {str: dict(_SETS, start=int, boot=str, title=str, group=str, threads={str: str}, **{"rank?": int})},
}
_ENGINES = ("docker", "podman", "cri")


def check(data: dict[str, Any]) -> None:
    require_shape(data, _SHAPE, "it")
    for unit, entry in data.get("services", {}).items():
        if not is_unit(unit):
            raise ValueError("%r is not a unit" % unit)
        check_paths(entry["folders"])
        if entry.get("foreign"):
            check_files({"/foreign": entry["foreign"]})
        _check_npus(unit, entry)
    for container, entry in data.get("containers", {}).items():
        if not _CONTAINER.match(container) or entry["engine"] not in _ENGINES:
            raise ValueError("%r of %r is not a container" % (container, entry["engine"]))
        check_paths([entry["group"]])
        _check_npus("container " + container, entry)
    processes = data.get("processes", {})
    for number in [*processes, *(number for entry in processes.values() for number in entry["threads"])]:
        if not is_number(number):
            raise ValueError("%r is not a process" % number)
    for number, entry in processes.items():
        check_paths([entry["group"]])
        _check_npus("process " + number, entry)
    for entry in [*data.get("services", {}).values(), *data.get("containers", {}).values(), *processes.values()]:
        given = [text for one in entry.get("given") or () for text in one.values()]
        for cpus in [entry["cpus"], entry.get("mems", ""), entry.get("before", ""), *entry.get("threads", {}).values(), *given]:
            expand(cpus, "cpus")


def _check_npus(name: str, entry: dict[str, Any]) -> None:
    for npu in entry["npus"]:
        if len(npu) != 2 or not isinstance(npu[0], str) or not isinstance(npu[1], int):
            raise ValueError("%s has the NPU %r" % (name, npu))
