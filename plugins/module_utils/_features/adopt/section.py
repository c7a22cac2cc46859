# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of what previous.json has of adopted work (:mod:`.record`)."""

from __future__ import annotations

import re
from typing import Any

from ..._base.cpulist import expand
from ..._base.outside import require_shape
from ..._state.sections import check_paths, is_number, is_unit

_CONTAINER = re.compile(r"[0-9a-f]{64}\Z")
_PROCESS = {"start": int, "boot": str, "title": str, "cpus": str, "mems?": str, "threads": {str: str}, "npus?": [list]}
_SHAPE = {
    "services?": {str: {"npus": [list], "cpus": str, "mems?": str, "folders": [str]}},
    "containers?": {str: {"engine": str, "name": str, "npus": [list], "cpus": str, "mems?": str, "before": str, "group?": str}},
    "processes?": {str: _PROCESS},
}
_ENGINES = ("docker", "podman")


def check(data: dict[str, Any]) -> None:
    require_shape(data, _SHAPE, "it")
    for unit, entry in data.get("services", {}).items():
        if not is_unit(unit):
            raise ValueError("%r is not a unit" % unit)
        check_paths(entry["folders"])
        _check_npus(unit, entry)
    for container, entry in data.get("containers", {}).items():
        if not _CONTAINER.match(container) or entry["engine"] not in _ENGINES:
            raise ValueError("%r of %r is not a container" % (container, entry["engine"]))
        check_paths([entry["group"]] if entry.get("group") else [])
    processes = data.get("processes", {})
    for number in [*processes, *(number for entry in processes.values() for number in entry["threads"])]:
        if not is_number(number):
            raise ValueError("%r is not a process" % number)
    for number, entry in processes.items():
        _check_npus("process " + number, entry)
    for entry in [*data.get("services", {}).values(), *data.get("containers", {}).values(), *processes.values()]:
        for cpus in [entry["cpus"], entry.get("mems", ""), entry.get("before", ""), *entry.get("threads", {}).values()]:
            expand(cpus, "cpus")


def _check_npus(name: str, entry: dict[str, Any]) -> None:
    for npu in entry.get("npus", ()):
        if len(npu) != 2 or not isinstance(npu[0], str) or not isinstance(npu[1], int):
            raise ValueError("%s has the NPU %r" % (name, npu))
