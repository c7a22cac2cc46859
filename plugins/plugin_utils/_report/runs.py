# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of a fleet by the histories of its hosts: which one a rollback names, and which entry each host then goes back to.

A history is the list of entries of one host, newest first, as module ``history_info`` returns it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import alike, folded

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import LastChange

    class Entry(LastChange):
        difference: list[str]

    History = list[Entry]
LAST = "-1"
BEFORE = "before:"
FORMS = (
    f"{LAST} (the state before the last bind or unbind), a run such as 20261122T133015-7f3a (the state that it left), {BEFORE} and a run, "
    "or a time such as 2026-11-22T13:30 (UTC)"
)
SHOWN = 5
"""So many runs are named where one was not found."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?Z?)?")
_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")


class Run(NamedTuple):
    """A call of a playbook that changed hosts; ``time`` is when it began, and ``hosts`` are those that have it in their history."""

    id: str
    time: str
    action: str
    author: str
    reason: str
    inventory: str
    hosts: list[str]

    def about(self) -> str:
        """Return what it was: the action, who began it, with which inventory, on which hosts, and why."""
        who = f" by {self.author}" if self.author else ""
        source = f" with {self.inventory}" if self.inventory else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.action}{who}{source} on {folded(self.hosts)}{why}"


def runs(histories: Mapping[str, History]) -> list[Run]:
    """Return the runs that hosts have in their histories, oldest first. A run of several actions is called by its first one."""
    by_id: dict[str, Run] = {}
    for name, history in histories.items():
        for entry in reversed(history):
            run = entry["run"]
            begun = Run(run["id"], run["time"], entry["action"], entry["author"], entry["reason"], run["inventory"], [])
            hosts = by_id.setdefault(run["id"], begun).hosts
            if name not in hosts:
                hosts.append(name)
    return sorted(by_id.values(), key=lambda run: (run.time, run.id))


def listing(histories: Mapping[str, History], verbose: bool) -> list[str]:
    """Return lines for each run, newest first: what it was, and what it changed, once for all hosts where that is the same."""
    lines = []
    for run in runs(histories)[::-1]:
        changes = {
            name: [line for entry in histories[name][::-1] if entry["run"]["id"] == run.id for line in entry["difference"]]
            for name in run.hosts
        }
        if len(set(map(tuple, changes.values()))) > 1:
            shown = alike({name: [f"  {line}" for line in text] for name, text in changes.items()}, verbose)
        else:
            shown = changes[run.hosts[0]]
        lines += [f"{run.id}  {run.about()}", *(f"  {line}" for line in shown)]
    return lines


def resolved(histories: Mapping[str, History], to: str) -> tuple[str, list[str]]:
    """Return what ``to`` of a user means in this run: a run, or ``before:`` and a run, which mean the same in every later run, and lines
    that say so.

    ``-1`` means before the last run that was no rollback, so it stays where it is once it is there. Raises ``ValueError`` where that is
    not known.
    """
    known_runs = runs(histories)
    changes = [run for run in known_runs if run.action != "rollback"]
    moment, name = _TIME.fullmatch(to), to.removeprefix(BEFORE)
    if not known_runs:
        return to, []
    if to == LAST:
        if not changes:
            raise ValueError(f"these hosts have only rollbacks in their histories; {_listed(known_runs)}")
        target, run = f"{BEFORE}{changes[-1].id}", changes[-1]
    elif moment:
        second = f"{moment[1]}T{moment[2] or '00:00'}{moment[3] or ':00'}Z"
        begun = [run for run in known_runs if run.time <= second]
        if not begun:
            raise ValueError(f"no run of these hosts had begun at {second}; {_listed(known_runs)}")
        target, run = begun[-1].id, begun[-1]
    elif _RUN.fullmatch(name):
        target, run = to, next((run for run in known_runs if run.id == name), known_runs[0])
        if run.id != name:
            raise ValueError(f"none of these hosts has run {name} in its history; {_listed(known_runs)}")
    else:
        raise ValueError(f"{to!r} is not a state to restore: expected {FORMS}; {_listed(known_runs)}")
    side = "before" if target.startswith(BEFORE) else "after"
    return target, [f"npu_affinity_to={to} is the state {side} run {run.id}: {run.about()}"]


def unsure(to: str, target: str, unread: Sequence[str]) -> str:
    """Return why ``to`` cannot be resolved although ``target`` is what it means for the hosts that answered; '' where it can."""
    if to != LAST or target == LAST or not unread:
        return ""
    return (
        f"which run is the last one is not known, because the history of {folded(unread)} could not be read. If it is the one named above, "
        f"use -e npu_affinity_to={target}; to leave these hosts out, use --limit."
    )


def entry_of(history: History, target: str) -> Entry | None:
    """Return the entry of a host that a resolved target means; None for a host that the run did not change. Raises ``ValueError`` for a
    host that has no such entry."""
    entries = history[::-1]
    name = target.removeprefix(BEFORE)
    places = [place for place, entry in enumerate(entries) if entry["run"]["id"] == name]
    if target.startswith(BEFORE):
        if not places:
            return None
        earlier = entries[: places[0]]
    else:
        earlier = entries[: places[-1] + 1] if places else [entry for entry in entries if entry["run"]["id"] < name]
    if earlier:
        return earlier[-1]
    oldest = entries[0]
    if oldest["id"] == 1:
        why = f"its first entry is of run {oldest['run']['id']}; to restore its state before the first bind, run unbind"
    else:
        why = f"its oldest entry that is kept is of run {oldest['run']['id']}"
    raise ValueError(f"this host has no earlier state: {why}")


def _listed(runs: Iterable[Run]) -> str:
    newest = [f"{run.id} ({run.action})" for run in runs][-SHOWN:][::-1]
    return f"the newest runs are {', '.join(newest)}" if len(newest) > 1 else f"the only run is {newest[0]}"
