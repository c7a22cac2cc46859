# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which entry of the history is meant: so many before the newest, an id, or the one in force at a time."""

from __future__ import annotations

import re
from typing import Sequence

from .entries import Entry

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?Z?)?\Z")


def choose(entries: Sequence[Entry], to: str) -> Entry:
    """Return the entry of a history, oldest first, that is meant. Raises ``ValueError`` with what there is instead.

    ``-1`` is the one before the newest; a time is in UTC, and a date is its first second.
    """
    known = "this host has %s of %s" % (_ids([entry.id for entry in entries]), " to ".join(sorted({entries[0].time, entries[-1].time})))
    moment = _TIME.match(to)
    if re.match(r"-[1-9]\d*\Z", to):
        found = entries[: int(to)][-1:]
    elif to.isdigit():
        found = [entry for entry in entries if entry.id == int(to)]
    elif moment:
        second = "%sT%s%sZ" % (moment.group(1), moment.group(2) or "00:00", moment.group(3) or ":00")
        found = [entry for entry in entries if entry.time <= second][-1:]
    else:
        raise ValueError("'%s' is neither -1, nor an id, nor a time such as 2026-11-22T13:30 (UTC); %s" % (to, known))
    if not found and len(entries) == 1 and to.startswith("-"):
        text = "no earlier state: this host has only entry %d of %s; to restore its state before the first bind, run unbind"
        raise ValueError(text % (entries[0].id, entries[0].time))
    if not found:
        raise ValueError("there is no entry %s in the history; %s" % (to, known))
    return found[0]


def _ids(ids: Sequence[int]) -> str:
    return "entry %d" % ids[0] if len(ids) == 1 else "entries %s" % ", ".join(map(str, ids))
