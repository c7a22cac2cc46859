# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of running processes as a step of the transaction that applies a desired state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ..._host.host import Host
from ..._state.diffs import diffs
from ..._state.step import LiveStep
from . import placing
from .memory import Migration, tables
from .tasks import Found, find, groups_of

if TYPE_CHECKING:
    from ..._base.documents import ThreadsLive


class Threads(LiveStep):
    """Places the threads of running processes on the CPUs of their roles.

    ``wanted`` is what a desired state has as ``live.threads``. Memory that follows them is moved by :meth:`complete` when all else has
    succeeded, because that takes minutes and cannot be undone.
    """

    title = "threads"
    key = "threads"
    disruptive = False

    def __init__(self, host: Host, plan: Mapping[str, Any], wanted: ThreadsLive) -> None:
        LiveStep.__init__(self)
        self.host = host
        self.plan = plan
        self.wanted = wanted
        self.memory = wanted.get("memory", "none")
        self.report = placing.Report(Found([], []))
        self.migration: Migration | None = None
        self.links: list[str] = []
        self._check = False
        self._begun = False

    @property
    def changed(self) -> bool:
        """Whether a thread was or would be moved. A failure before :meth:`run` counts: the files may change what the kernel grants."""
        return self.report.changed or (bool(self.report.failed) and not self._begun)

    def look(self, check: bool) -> None:
        self._check = check
        if self.memory == "migrate":
            asked = find(self.host, self.plan, groups_of(self.plan, self.wanted["processes"])).processes
            self.migration = Migration(self.host, asked, self.host.timeout)
            self.migration.refuse_above(self.wanted["memory_limit"])
            patterns = placing.completed(self.wanted["patterns"])
            linked = [placing.kv_thread(self.host, [process.pid], patterns) for process, _table, _amount in self.migration.todo]
            self.links = ["%s transfers KV caches: its links can time out while its memory moves" % link for link in linked if link]
        self._place(check=True)
        if check:
            self._require_all()

    def run(self) -> None:
        self._begun = True
        self._place(check=False)
        self._require_all()

    def undo(self) -> None:
        if self._begun:
            placing.put_back(self.host, self.report)

    def _place(self, check: bool) -> None:
        self.report = placing.place(self.host, self.plan, self.wanted["processes"], self.wanted["patterns"], check)
        self.warnings = self.report.warnings + self.links

    def _require_all(self) -> None:
        if self.report.failed:
            raise ValueError("not every thread could be placed: " + "; ".join(self.report.failed))

    def complete(self) -> None:
        if self.migration:
            self.migration.carry_out()
            self.warnings = self.warnings + self.migration.warnings
            if self.migration.failed:
                raise ValueError("not all memory could be moved: " + "; ".join(self.migration.failed))

    def result(self) -> dict[str, Any]:
        """Return ``{changed, processes, failures, memory, migration}``."""
        found = result_of(self.report, self.migration, self._check)
        if self.memory != "none":
            found["memory"], unread = tables(self.host, self.report.found)
            self.warnings = self.warnings + unread
        return found

    def lines(self) -> dict[str, list[str]]:
        moved = diffs.memory(self.migration, self._check) if self.migration else []
        return {diffs.MEMORY: moved, diffs.THREADS: diffs.threads(self.report.processes)}


def result_of(report: placing.Report, migration: Migration | None, check: bool) -> dict[str, Any]:
    """Return ``{changed, processes, failures}``, and ``migration`` where memory follows the threads."""
    rows = [dict(row, threads=placing.grouped(row["threads"])) for row in report.processes]
    result: dict[str, Any] = {
        "changed": report.changed,
        "processes": [{key: value for key, value in row.items() if key != "title"} for row in rows],
        "failures": list(report.failed),
    }
    if migration:
        result["migration"] = {
            "total_mib": round(migration.total, 1),
            "moved_mib": round(migration.moved, 1),
            "steps": migration.steps,
        }
        result["changed"] |= bool(migration.todo) if check else migration.moved >= 1
        result["failures"] += migration.failed
    return result
