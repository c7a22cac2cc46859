# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host should be by its own history, and since which entry something is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from ..._host.host import Host
from .entries import Entry, ids, readable

if TYPE_CHECKING:
    from ..._base.documents import AppliedState

_NO_HISTORY = "this host has no history, so files and units are not compared: bind it once more"
_UNREADABLE = "the newest entry of the history cannot be read, so files and units are not compared: bind the host once more"


class InForce(NamedTuple):
    """``entries`` are those that can be read, oldest first. ``state`` is None without an entry, or where the newest one cannot be read;
    ``missing`` then has the reason. ``remarks``: why an entry cannot be read."""

    entries: Sequence[Entry]
    state: AppliedState | None
    missing: str
    remarks: Sequence[str]

    @property
    def npu_smi(self) -> str | None:
        """The command npu-smi, None where it is searched."""
        return self.state.get("npu_smi") if self.state else None


def in_force(host: Host) -> InForce:
    """Return what the history of a host says is in force there. Raises ``ValueError`` for who may not read the history."""
    entries, unreadable = readable(host)
    newest = ids(host)[-1:]
    if [entry.id for entry in entries[-1:]] != newest:
        return InForce(entries, None, _UNREADABLE, unreadable)
    return InForce(entries, entries[-1].state if entries else None, "" if entries else _NO_HISTORY, unreadable)


def since(entries: Sequence[Entry], part: Callable[[AppliedState], Any]) -> Entry | None:
    """Return the entry since which a part of the state is as it is now, without a look at entries that do not have the part; None where
    no entry has it."""
    found = None
    for entry in reversed(entries):
        value = part(entry.state)
        if value is None:
            continue
        if found is not None and value != part(found.state):
            break
        found = entry
    return found
