# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest states that were applied to a host: when, in which run, by whom, why, and what is needed to apply each of them again.

An entry is a file of its own, readable by root only. It has no host code: that is the one of the collection that applies it.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence, cast

from .._host.host import Host
from .._base.outside import json_of, require_shape
from . import sections
from .._base.version import SCHEMA, VERSION, refuse_newer
from .plan_file import plan_npus
from .files import MARKER, atomic_write, make_folder, remove_empty, remove_file
from .previous import dump
from .unit_files import text_digest

if TYPE_CHECKING:
    from .._base.documents import AppliedState, LastChange, Run

FOLDER = "/etc/npu-affinity/history"
OWNED = FOLDER + "/*.json"
LIMIT = 10
"""How many entries are kept."""
TIME = "%Y-%m-%dT%H:%M:%SZ"
_UNIT_WITH_SETS = {"unit": str, "cpus?": str, "mems?": str, "more?": str}
STATE = {
    "features": {str: str},
    "files": [{"path": str, "content": str, "mode?": str}],
    "plan": (dict, type(None)),
    "live": sections.LIVE,
    "pending?": {str: (dict, type(None))},
    "absent": {str: {"owned": [str], "sections": [str]}},
    "hardware": dict,
    "notes?": {str: [str]},
    "restarted?": [{"unit": str, "files": [str]}],
    "expected?": [_UNIT_WITH_SETS],
}
STATE.update({"%s?" % key: [str] for key in ("owned", "enabled", "started", "stopped", "released", "programs")})
_RUN = {"id": str, "time": str, "inventory": str}
_ENTRY = {"time": str, "version": str, "action": str, "author": str, "reason": str, "run": _RUN, "state": STATE}
_ABOUT = MARKER + ": a state that was applied to this host."
_NO_HISTORY = "this host has no history, so files and units are not compared: bind it once more"
_UNREADABLE = "the newest entry of the history cannot be read, so files and units are not compared: bind the host once more"

_LEFT_OUT = ("digest", "notes", "absent")
"""The digest itself, sentences for the user, and what follows from the features that are absent."""


class Applied(NamedTuple):
    """A state that is being applied. ``action``: bind, rollback or unbind; ``author``: who started it on the controller; ``run``: the run
    that it belongs to, which is one of its own by default.

    ``new``: whether the history gets it even if nothing on the host has to change for it.
    """

    action: str
    state: AppliedState
    author: str = ""
    reason: str = ""
    run: Run | None = None
    new: bool = False


class Entry(NamedTuple):
    """One state of the history; ``time`` is in UTC, as :data:`TIME` has it."""

    id: int
    time: str
    version: str
    action: str
    author: str
    reason: str
    run: Run
    state: AppliedState

    def header(self) -> LastChange:
        """Return all but the state."""
        return cast("LastChange", {name: value for name, value in self._asdict().items() if name != "state"})

    def title(self) -> str:
        """Return what sentences call it."""
        return "the %s of %s%s (run %s)" % (self.action, self.time[:10], " by %s" % self.author if self.author else "", self.run["id"])


def new_run(inventory: str = "") -> Run:
    """Return a run that begins now. Ids sort as text by the time."""
    begun = time.gmtime()
    number = binascii.hexlify(os.urandom(2)).decode()
    return {"id": "%s-%s" % (time.strftime("%Y%m%dT%H%M%S", begun), number), "time": time.strftime(TIME, begun), "inventory": inventory}


def ids(host: Host) -> list[int]:
    """Return the ids of the entries of a host, oldest first. Raises ``ValueError`` for who may not look."""
    try:
        names = os.listdir(host.resolve(FOLDER))
    except PermissionError:
        raise ValueError("%s cannot be read; run as root (become: true)" % FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[: -len(".json")]) for name in names if re.match(r"\d+\.json\Z", name))


def read(host: Host, number: int) -> Entry:
    """Return an entry. Raises ``ValueError`` with a sentence if it is not managed, or of a newer version."""
    path = _path(number)
    text = host.text(path)
    if text is None:
        raise ValueError("%s was removed in the meantime; run again" % path)
    try:
        document = json_of(text)
    except ValueError as error:
        raise ValueError("%s is not valid JSON (%s); remove it" % (path, error))
    refuse_newer(path, document)
    try:
        require_shape(document, _ENTRY, "it")
        if document["state"]["plan"] is not None:
            plan_npus(document["state"]["plan"])
        entry = Entry(number, *[document[name] for name in Entry._fields[1:]])
        time.strptime(entry.time, TIME)
    except ValueError as error:
        raise ValueError("%s is not an entry of the history (%s); remove it" % (path, error))
    return entry


def readable(host: Host) -> tuple[list[Entry], list[str]]:
    """Return the entries of a host, oldest first, and a sentence for each that cannot be read."""
    entries, sentences = [], []
    for number in ids(host):
        try:
            entries.append(read(host, number))
        except ValueError as error:
            sentences.append(str(error))
    return entries, sentences


def chosen(entries: Sequence[Entry], number: int) -> Entry:
    """Return the entry of a history, oldest first, with this id; a negative number counts back from the newest one.

    Raises ``ValueError`` with what there is instead.
    """
    there = "entries %s" % ", ".join(str(entry.id) for entry in entries) if entries else "no entry"
    matches = entries[:number][-1:] if number < 0 else [entry for entry in entries if entry.id == number]
    if not matches:
        raise ValueError("there is no entry %d in the history; this host has %s" % (number, there))
    return matches[0]


def newest(host: Host) -> Entry | None:
    """Return the entry that was applied last, or None where that is not known."""
    try:
        numbers = ids(host)
        return read(host, numbers[-1]) if numbers else None
    except ValueError:
        return None


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
    if [entry.id for entry in entries[-1:]] != ids(host)[-1:]:
        return InForce(entries, None, _UNREADABLE, unreadable)
    return InForce(entries, entries[-1].state if entries else None, "" if entries else _NO_HISTORY, unreadable)


def since(entries: Sequence[Entry], part: Callable[[AppliedState], Any]) -> Entry | None:
    """Return the entry since which a part of the state is as it is now, passing over entries without the part; None where none has it."""
    first = None
    for entry in reversed(entries):
        value = part(entry.state)
        if value is None:
            continue
        if first is not None and value != part(first.state):
            break
        first = entry
    return first


def keep(host: Host, applied: Applied) -> int | None:
    """Add an entry, drop the oldest ones, and return its id; None where that state is in force already: it was only repaired.

    Raises ``ValueError`` with a sentence, and leaves no new entry, where that cannot be done.
    """
    numbers = ids(host)
    last = newest(host)
    if last and digest(applied.state) == digest(last.state):
        return None
    number = numbers[-1] + 1 if numbers else 1
    now, run = time.strftime(TIME, time.gmtime()), applied.run or new_run()
    entry = Entry(number, now, VERSION, applied.action, applied.author, applied.reason, run, applied.state)
    try:
        make_folder(host, FOLDER, 0o700)
        atomic_write(host, _path(number), dump(_ABOUT, dict(entry._asdict(), schema=SCHEMA)), 0o600)
        for old in (numbers + [number])[:-LIMIT]:
            os.unlink(host.path(_path(old)))
    except OSError as error:
        remove_file(host, _path(number))
        remove_empty(host, [FOLDER])
        raise ValueError("%s cannot be written: %s" % (FOLDER, error.strerror or error))
    return number


def _path(number: int) -> str:
    return "%s/%d.json" % (FOLDER, number)


def digest(state: AppliedState) -> str:
    """Return the SHA-256 of a desired state as canonical JSON: numbers as keys are text, as they are after JSON, and lists have no order.

    Features that are applied one by one come in another order than those of a bind, and those that nobody has applied are missing. They
    count as absent, and paths where only absent features have files do not count.
    """
    plain = json.loads(json.dumps({key: value for key, value in state.items() if key not in _LEFT_OUT and value != {}}))
    if "features" in plain:
        plain["features"] = {name: presence for name, presence in plain["features"].items() if presence != "absent"}
    if "owned" in plain:
        undone = {pattern for traces in state.get("absent", {}).values() for pattern in traces["owned"]}
        plain["owned"] = [pattern for pattern in plain["owned"] if pattern not in undone]
    parts = {key: sorted(map(_canonical, value)) if isinstance(value, list) else _canonical(value) for key, value in plain.items()}
    return hashlib.sha256(_canonical(parts).encode()).hexdigest()


def reduced(state: AppliedState) -> AppliedState:
    """Return a state with digests for texts of files and for live values. Two states that are reduced differ as they did before."""
    files = [dict(file, content=text_digest(file["content"])) for file in state["files"]]
    live = {name: text_digest(_canonical(value)) for name, value in state["live"].items()}
    return cast("AppliedState", {**state, "files": files, "live": live})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
