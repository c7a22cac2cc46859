# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fleet of all hosts of operators' reports. They are bound; then what their report tells happens to them; they are verified, and bound
again."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.fakes.small_host import said
from tests.integration.conftest import Fleet, Run

Change = Callable[[pathlib.Path], None]
AT_ONCE = {"npu_affinity_batches": ["100%"]}
SHOWN = {"c07", "c07-service", "c37", "l01"}
"""The hosts whose plan is looked at as playbook plan shows it."""


class Described(NamedTuple):
    """A host of a report: ``tweak`` changes its tree before the first bind, and what ``happens`` does so after it."""

    machine: Mapping[str, Any]
    variables: Mapping[str, Any] = {}
    tweak: Change | None = None
    happens: Change | None = None


class Played(NamedTuple):
    fleet: Fleet
    planned: Run
    bound: Run
    verified: Run
    again: Run

    def plan(self, host: str) -> Any:
        return json.loads(self.file(host, "/etc/npu-affinity/plan.json"))

    def pools(self, host: str) -> dict[str, str]:
        return {str(entry["id"]): entry["pool"] for entry in self.plan(host)["npus"]}

    def allowed_memory(self, host: str) -> list[str]:
        return [entry["memory_nodes"] for entry in self.plan(host)["npus"]]

    def file(self, host: str, path: str) -> str:
        return pathlib.Path(f"{self.fleet.tree(host)}{path}").read_text()

    def shown(self, host: str) -> str:
        """The plan of a host as playbook plan shows it; equal ones are shown once."""
        (lines,) = (entry["result"]["lines"] for entry in self.planned.results if entry["result"].get("step") == "show_plans")
        parts = "\n".join(lines).split("\n\n")
        return " ".join(next(part for part in parts if host in part.partition(":")[0].split(", ")).split())

    def found(self, host: str) -> list[str]:
        return said(self.verified, host)


def play(folder: pathlib.Path, hosts: Mapping[str, Described]) -> Played:
    fleet = Fleet(folder, {name: host.machine for name, host in hosts.items()})
    fleet.give({name: dict(host.variables) for name, host in hosts.items() if host.variables})
    for name, host in hosts.items():
        if host.tweak:
            host.tweak(fleet.tree(name))
    planned = fleet.play("plan", "--limit", ",".join(SHOWN & hosts.keys()))
    bound = fleet.play("bind", **AT_ONCE)
    for name, host in hosts.items():
        if host.happens:
            host.happens(fleet.tree(name))
    return Played(fleet, planned, bound, fleet.play("verify"), fleet.play("bind", **AT_ONCE))
