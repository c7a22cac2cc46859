# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of running processes: a step of the transaction that applies a desired state, let go by an unbind, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._base.findings import CHANGED_CPUSET, EDIT, Cause, Device, Value, coded
from ..._host.host import Host
from ..._state import diffs, step
from ..feature import Comparing
from . import placing
from .memory import Migration, tables
from .feature import SETTINGS
from .tasks import find, groups_of, plan_in_force, titles_of

if TYPE_CHECKING:
    from ..._base.documents import AppliedState, Plan, ThreadsLive

_MOVED = "started since the timer last looked, or the worker places it itself (vLLM-Ascend: enable_cpu_binding=false)"


class Threads(step.LiveStep):
    """Places the threads of running processes on the CPUs of their roles.

    ``wanted`` is what a desired state has as ``live.threads``. Memory that follows them is moved by :meth:`complete` when all else has
    succeeded, because that takes minutes and cannot be undone.
    """

    title = "threads"
    key = "threads"
    disruptive = False

    def __init__(self, host: Host, plan: Plan, wanted: ThreadsLive) -> None:
        step.LiveStep.__init__(self)
        self.host = host
        self.plan = plan
        self.wanted = wanted
        self.memory = wanted.get("memory", "none")
        self.report = placing.Report()
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
            processes, _warnings = find(self.host, self.plan, groups_of(self.plan, self.wanted["processes"]))
            self.migration = Migration(self.host, processes, self.host.timeout)
            self.migration.refuse_above(self.wanted["memory_limit"])
            patterns = placing.completed(self.wanted["patterns"])
            linked = [placing.kv_thread(self.host, [process.pid], patterns) for process, *_memory in self.migration.todo]
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
            placing.restore(self.host, self.report)

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
        """Return ``{changed, processes, failures}``, and ``memory`` and ``migration`` where it follows the threads."""
        migration, rows = self.migration, [{**row, "threads": placing.grouped(row["threads"])} for row in self.report.processes]
        without_titles = [{key: value for key, value in row.items() if key != "title"} for row in rows]
        result: dict[str, Any] = {"changed": self.report.changed, "processes": without_titles, "failures": list(self.report.failed)}
        if migration:
            amounts = {"total_mib": round(migration.total, 1), "moved_mib": round(migration.moved(), 1)}
            result["migration"] = {**amounts, "steps": migration.steps}
            result["changed"] |= bool(migration.todo) if self._check else migration.moved() >= 1
            result["failures"] += migration.failed
        if self.memory != "none":
            result["memory"], unread = tables(self.host, self.report.selected)
            self.warnings = self.warnings + unread
        return result

    def lines(self) -> dict[str, list[str]]:
        moved = self.migration.lines(self._check) if self.migration else []
        return {diffs.MEMORY: moved, diffs.THREADS: diffs.threads(self.report.processes)}


def of_state(host: Host, live: ThreadsLive, state: AppliedState) -> Threads | None:
    return Threads(host, state["plan"], live) if state["plan"] else None


class Restore(step.Restore):
    """Lets threads go that were placed: newer kernels keep what was set when a cpuset widens. ``report`` is a :class:`placing.Report`."""

    report: placing.Report | None = None

    @property
    def changed(self) -> bool:
        return self.report is not None and self.report.changed

    def look(self, check: bool) -> None:
        try:
            self.report = self._place(check=True) if self.host.exists(SETTINGS) else None
        except (OSError, ValueError) as error:
            self.outcome.warnings.append("threads stay where they were placed until their processes end: %s" % error)

    def run(self) -> None:
        if self.report is not None:
            self.report = self.outcome.attempt(None, self._place)
            self.outcome.warnings += self.report.failed if self.report else []

    def lines(self) -> dict[str, list[str]]:
        return {diffs.THREADS: diffs.threads(self.report.processes) if self.report else []}

    def undo(self) -> None:
        if self.report is not None:
            placing.restore(self.host, self.report)

    def _place(self, check: bool = False) -> placing.Report:
        return placing.place(self.host, plan_in_force(self.host), *placing.settings_of(self.host), check, widen=True)


def compare(comparing: Comparing, wanted: ThreadsLive) -> None:
    """Compare all threads; an object is what the processes of an NPU have in one role.

    Refusals by a cpuset count as drift, too. What is merely worth knowing becomes a remark.
    """
    findings = comparing.findings
    report = placing.place(comparing.host, comparing.plan, wanted["processes"], wanted["patterns"], check=True)
    objects: dict[tuple[str, Device | None], list[tuple[placing.ProcessRow, placing.ThreadRow]]] = {}
    for process, row in zip(report.selected, report.processes):
        device = Device.of(process.npus[0]) if len(process.npus) == 1 else None
        for entry in (entry for entry in row["threads"] if entry["state"] not in ("left", "gone")):
            wrong = objects.setdefault(("%s threads of %s" % (entry["role"], titles_of(process.npus)), device), [])
            wrong += [(row, entry)] if entry["state"] != "placed" else []
    for (name, device), wrong in objects.items():
        if not wrong:
            findings.same("threads", name)
            continue
        row, entry = wrong[0]
        task = "thread %d (%s) of process %d (%s)" % (entry["tid"], entry["name"], row["pid"], row["name"])
        actual = Value(cpus=entry["before"], task=task, more=len(wrong) - 1)
        cause = Cause(CHANGED_CPUSET, entry["text"]) if entry["state"] == "refused" else Cause(EDIT, _MOVED)
        findings.differs("threads", name, Value(cpus=entry["wanted"]), actual, cause, device)
    findings.remarks += coded("NPU_THREAD_UNPLACED", report.warnings)
