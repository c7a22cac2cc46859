# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the command knows of its host: the plan in force, the history, and what the host should be by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

from .._state.history.entries import Entry
from .._state.history.in_force import InForce, in_force, since
from .._host.host import Host
from .._state.plan_file import Broken, read

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Plan, PlanEntry, UnitSets


class Known(NamedTuple):
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
        """The entries of the plan."""
        return self.plan["npus"] if self.plan else []

    @property
    def notes(self) -> dict[str, list[str]]:
        """Sentences for the user by feature."""
        return self.state.get("notes", {}) if self.state else {}

    def live(self, feature: str) -> Any:
        """Return what a feature wants of the running host, None where it is not known or absent."""
        live: Mapping[str, Any] = self.state["live"] if self.state else {}
        return live.get(feature)

    def expected(self) -> dict[str, UnitSets]:
        """Return the sets that the kernel must grant, by unit."""
        return {entry["unit"]: entry for entry in (self.state.get("expected", []) if self.state else [])}

    def text_of(self, path: str) -> str | None:
        """Return the text of a file as the bind wrote it, None where that is not known."""
        files = {file["path"]: file["content"] for file in (self.state["files"] if self.state else ())}
        return files.get(path)

    def origin(self, path: str) -> str:
        """Return a path, with the time and author of its file's last change, if the history has it."""
        return path + self.author(lambda state: next((file for file in state["files"] if file["path"] == path), None))

    def unit_that_runs(self, program: str) -> str:
        """Return :meth:`origin` of the managed unit that runs a program."""
        files = [file["path"] for file in (self.state["files"] if self.state else ()) if " -m %s" % program in file["content"]]
        return self.origin(files[0]) if files else program

    def author(self, part: Callable[[AppliedState], Any]) -> str:
        """Return who made a part of the state what it is, when and why, in parentheses; '' where that is not known."""
        entry = since(self.entries, part)
        if entry is None:
            return ""
        return " (since %s)" % summary(entry)


def summary(entry: Entry) -> str:
    """Return an entry of the history in few words."""
    who = " by %s" % entry.author if entry.author else ""
    why = ": %s" % entry.reason if entry.reason else ""
    return "%s, %s%s, run %s%s" % (entry.time, entry.action, who, entry.run["id"], why)


def known(host: Host, private: bool = True) -> Known:
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
        history = InForce([], None, "", ["who bound this host, when and why is for root to see"])
    return Known(host, plan, history, [*remarks, *history.remarks])
