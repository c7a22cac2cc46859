# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a host stands: bound, with or without its workloads, drifted, pending or not bound, and why. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from .._base.table import count
from .._drift.codes import WORK_OUTSIDE_POOL
from .._base.findings import noun
from .._base.findings import OLD_PROCESS
from .._drift.in_force import compare, drift_of
from .._host.host import Host
from .._state import journal, lock, previous
from .._state.host_code import compared_with
from .._state.journal import INTERRUPTED
from .._topology.gather import gather
from .._users.pools import sentence
from .._users.ranks import titles
from .known import Known, known, summary

if TYPE_CHECKING:
    from .._base.documents import Drift, OutsideUser

BOUND, DRIFTED, PENDING, NOT_BOUND, OUTSIDE = "bound", "drifted", "pending", "not bound", "bound, workloads not"
CODES = {BOUND: 0, DRIFTED: 3, PENDING: 4, NOT_BOUND: 5, OUTSIDE: 6}
"""The exit status of each state; 1 is an error, and 2 a mistake in the arguments."""
_SHOWN = 3


class Standing(NamedTuple):
    """``drift`` has the findings as module binding_info returns them, ``waiting`` sentences on what is under way or not finished."""

    state: str
    known: Known
    drift: Sequence[Drift]
    checked: dict[str, list[str]]
    waiting: Sequence[str]
    remarks: Sequence[str]
    outside: Sequence[OutsideUser] = ()
    ranks: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        last = self.known.entries[-1].header() if self.known.entries else None
        return {
            "state": self.state,
            "bound": self.state != NOT_BOUND,
            "drift": list(self.drift),
            "checked": self.checked,
            "waiting": list(self.waiting),
            "remarks": list(self.remarks),
            "outside": list(self.outside),
            "ranks": list(self.ranks),
            "last_change": last,
        }

    def line(self) -> str:
        """Return all of it in one line."""
        objects = sum(map(len, self.checked.values()))
        if self.state == NOT_BOUND:
            return "not bound: there is no plan in force on this host"
        if self.state == OUTSIDE:
            return "bound, workloads not: %s [%s]" % (sentence(self.outside), WORK_OUTSIDE_POOL)
        if self.state == BOUND:
            last = " since %s" % summary(self.known.entries[-1]) if self.known.entries else ""
            return "bound: %s, %s as they should be%s" % (
                count(len(self.known.npus), noun(self.known.npus)),
                count(objects, "object"),
                last,
            )
        names = ["%s (%s, %s)" % (entry["object"], entry["cause"], entry["code"]) for entry in self.drift[:_SHOWN]]
        more = ["%d more" % (len(self.drift) - _SHOWN)] if len(self.drift) > _SHOWN else []
        if self.state == PENDING:
            return "pending: %s" % "; ".join([*self.waiting, *names, *more])
        found = "%d of %s differ: %s" % (len(self.drift), count(objects, "object"), ", ".join(names + more))
        return "drifted: %s; 'npu-affinity verify' shows why" % found


def standing(host: Host) -> Standing:
    """Return how the host stands, compared as playbook verify does it: with its plan, its history, and the NPUs that it has now.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` with a sentence for what could not be compared.
    """
    waiting = _waiting(host)
    found = known(host)
    topology = gather(host, npu_smi=found.history.npu_smi) if found.plan or found.entries else None
    compared = compare(host, topology=topology, host_code=compared_with(host, None), history=found.history)
    drift = drift_of(host, compared)
    state, findings = _state(compared.bound, drift, waiting), compared.findings
    if state == BOUND and findings.outside:
        state = OUTSIDE
    remarks = [*(topology["problems"] if topology else ()), *findings.remarks]
    ranks = [line for user in (topology["users"] if topology else ()) for line in titles(user, found.plan or {"npus": []})]
    return Standing(state, found, drift, findings.checked, waiting, remarks, findings.outside, ranks)


def _state(bound: bool, drift: Sequence[Drift], waiting: Sequence[str]) -> str:
    if not (bound or drift or waiting):
        return NOT_BOUND
    if waiting or drift and all(entry["cause"] == OLD_PROCESS for entry in drift):
        return PENDING
    return DRIFTED if drift else BOUND


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
