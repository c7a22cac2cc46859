# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the command knows of its host: the plan in force, the history, what the host should be by it, and how it stands. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

from .._state.history import Entry, InForce, in_force, since
from .._host.host import Host
from .._state.plan_file import Broken, read
from .._base.table import count
from .._drift.codes import WORK_OUTSIDE_POOL
from .._base.findings import OLD_PROCESS, noun
from .._drift.in_force import compare, drift_of
from .._state import journal, lock, previous
from .._state.host_code import compared_with
from .._state.journal import INTERRUPTED
from .._topology.gather import gather
from .._users.pools import rank_titles, sentence

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Drift, Live, OutsideUser, Plan, PlanEntry, SlicesLive, UnitSets


class HostRecord(NamedTuple):
    """``plan`` is None on a host that is not bound; ``remarks``: what could not be read."""

    host: Host
    plan: Plan | None
    history: InForce
    remarks: Sequence[str]

    @property
    def entries(self) -> Sequence[Entry]:
        return self.history.entries

    @property
    def state(self) -> AppliedState | None:
        return self.history.state

    @property
    def npus(self) -> list[PlanEntry]:
        return self.plan["npus"] if self.plan else []

    @property
    def notes(self) -> dict[str, list[str]]:
        return self.state.get("notes", {}) if self.state else {}

    @property
    def live(self) -> Live:
        return self.state["live"] if self.state else {}

    @property
    def slices(self) -> SlicesLive:
        none: SlicesLive = {"method": "", "services": [], "workloads": [], "vnpus": [], "bound_by": ""}
        return self.live.get("slices") or none

    def expected(self) -> dict[str, UnitSets]:
        """Return the sets that the kernel must grant, by unit."""
        return {entry["unit"]: entry for entry in (self.state.get("expected", []) if self.state else [])}

    def text_of(self, path: str) -> str | None:
        """Return the text of a file as the bind wrote it, None where that is not known."""
        return next((file["content"] for file in (self.state["files"] if self.state else ()) if file["path"] == path), None)

    def origin(self, path: str) -> str:
        """Return a path, with the time and author of its file's last change, if the history has it."""
        return path + self.author(lambda state: next((file for file in state["files"] if file["path"] == path), None))

    def unit_that_runs(self, program: str) -> str:
        """Return :meth:`origin` of the managed unit that runs a program."""
        files = self.state["files"] if self.state else ()
        return next((self.origin(file["path"]) for file in files if " -m %s" % program in file["content"]), program)

    def author(self, part: Callable[[AppliedState], Any]) -> str:
        """Return who made a part of the state what it is, when and why, in parentheses; '' where that is not known."""
        entry = since(self.entries, part)
        return " (since %s)" % summary(entry) if entry else ""


def summary(entry: Entry) -> str:
    who, why = entry.author and " by " + entry.author, entry.reason and ": " + entry.reason
    return "%s, %s%s, run %s%s" % (entry.time, entry.action, who, entry.run["id"], why)


def record_of(host: Host, private: bool = True) -> HostRecord:
    """Return what is known of a host. Raises ``ValueError`` for a plan of a newer version, and with ``private`` for who may not read the
    history; otherwise that is a remark, as is a plan that is broken."""
    plan, remarks = None, []
    try:
        plan = read(host)
    except Broken as error:
        remarks.append(str(error))
    try:
        history = in_force(host)
    except ValueError:
        if private:
            raise
        history = InForce([], None, "", ["only root can see who bound this host, when and why"])
    return HostRecord(host, plan, history, [*remarks, *history.remarks])


BOUND, DRIFTED, PENDING, NOT_BOUND, OUTSIDE = "bound", "drifted", "pending", "not bound", "bound, workloads not"
CODES = {BOUND: 0, DRIFTED: 3, PENDING: 4, NOT_BOUND: 5, OUTSIDE: 6}
"""The exit status of each state; 1 is an error, and 2 a mistake in the arguments."""
_SHOWN = 3


class Status(NamedTuple):
    """``drift`` has the findings as module binding_info returns them, ``waiting`` sentences on what is under way or not finished."""

    state: str
    record: HostRecord
    drift: Sequence[Drift]
    checked: dict[str, list[str]]
    waiting: Sequence[str]
    remarks: Sequence[str]
    outside: Sequence[OutsideUser] = ()
    ranks: Sequence[str] = ()

    def document(self) -> Mapping[str, object]:
        fields = {name: value for name, value in self._asdict().items() if name != "record"}
        last = self.record.entries[-1].header() if self.record.entries else None
        return {**fields, "bound": self.state != NOT_BOUND, "last_change": last}

    def line(self) -> str:
        objects = sum(map(len, self.checked.values()))
        if self.state == NOT_BOUND:
            return "not bound: there is no plan in force on this host"
        if self.state == OUTSIDE:
            return "bound, workloads not: %s [%s]" % (sentence(self.outside), WORK_OUTSIDE_POOL)
        if self.state == BOUND:
            last = " since %s" % summary(self.record.entries[-1]) if self.record.entries else ""
            devices = count(len(self.record.npus), noun(self.record.npus))
            return "bound: %s, %s as they should be%s" % (devices, count(objects, "object"), last)
        names = ["%s (%s, %s)" % (entry["object"], entry["cause"], entry["code"]) for entry in self.drift[:_SHOWN]]
        names += ["%d more" % (len(self.drift) - _SHOWN)] if len(self.drift) > _SHOWN else []
        if self.state == PENDING:
            return "pending: %s" % "; ".join([*self.waiting, *names])
        differing = len(self.drift), count(objects, "object"), ", ".join(names)
        return "drifted: %d of %s differ: %s; 'npu-affinity verify' shows why" % differing


def status_of(host: Host) -> Status:
    """Return how the host stands, compared as playbook verify does it: with its plan, its history, and the NPUs that it has now.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` with a sentence for what could not be compared.
    """
    waiting = _waiting(host)
    record = record_of(host)
    topology = gather(host, npu_smi=record.history.npu_smi) if record.plan or record.entries else None
    compared = compare(host, topology=topology, host_code=compared_with(host, None), history=record.history)
    drift = drift_of(host, compared)
    findings = compared.findings
    if waiting or drift and all(entry["cause"] == OLD_PROCESS for entry in drift):
        state = PENDING
    elif drift or not compared.bound:
        state = DRIFTED if drift else NOT_BOUND
    else:
        state = OUTSIDE if findings.outside else BOUND
    remarks = [*(topology["problems"] if topology else ()), *findings.remarks]
    ranks = [line for user in (topology["users"] if topology else ()) for line in rank_titles(user, record.plan or {"npus": []})]
    return Status(state, record, drift, findings.checked, waiting, remarks, findings.outside, ranks)


def _waiting(host: Host) -> list[str]:
    """Return a sentence for everything that changes the host at the moment, or began and did not end."""
    program = lock.holder(host)
    if program:
        return ["%s is changing this host" % program]
    recorded = previous.recorded(host)
    sentences = ["%s is stopped and waits for the next bind, which starts it" % unit for unit in recorded.get(journal.SECTION, [])]
    if recorded.get(INTERRUPTED):
        sentences.append("a run was interrupted, or has something left that the next one tries again: bind again")
    return sentences
