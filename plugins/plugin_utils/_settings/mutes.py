# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings and remarks that are known: until a given time, they do not fail a host, and are not said."""

from __future__ import annotations

import datetime
import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import coded
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, REMARKS

SETTING = "npu_affinity_mute"


class Mute(NamedTuple):
    """A code that is muted on the hosts that a pattern matches."""

    code: str
    hosts: Sequence[str]
    until: datetime.datetime
    reason: str

    @property
    def end(self) -> str:
        return self.until.strftime("%Y-%m-%d %H:%M UTC")


def checked(value: Iterable[Mapping[str, Any]], setting: str = SETTING) -> list[Mute]:
    """Return the mutes. Raises ``ValueError`` for an unknown code, a time that is none, and a mute without a reason."""
    mutes = []
    for number, entry in enumerate(value, start=1):
        place, code, reason = f"{setting}: entry {number}", str(entry["code"]), str(entry["reason"]).strip()
        if code in REFUSALS and code not in REMARKS:
            raise ValueError(
                f"{place} has the code {code} of a refusal, which cannot be muted: correct what it names, and the host is bound"
            )
        if code not in CODES and code not in REMARKS:
            near = difflib.get_close_matches(code.upper(), [*CODES, *REMARKS], n=1)
            advice = f"did you mean {near[0]}?" if near else f"the codes are {', '.join(sorted([*CODES, *REMARKS]))}"
            raise ValueError(f"{place} has the code {code!r}, which nothing reports; {advice}")
        if not reason:
            raise ValueError(f"{place} has no reason: write why {code} is muted, or who is at work on it")
        until, utc = str(entry["until"]), datetime.timezone.utc
        try:
            time = datetime.datetime.fromisoformat(until.strip())
            time = time.replace(tzinfo=time.tzinfo or utc).astimezone(utc)
        except (OverflowError, ValueError):
            raise ValueError(
                f"{place}: until is {until!r}, which is not a date or time; write one such as 2026-12-01 or 2026-12-01T06:00 (UTC)"
            ) from None
        mutes.append(Mute(code, list(map(str, entry.get("hosts") or ["*"])), time, reason))
    return mutes


def of_host(mutes: Iterable[Mute], host: str, now: datetime.datetime | None = None) -> tuple[dict[str, str], list[str]]:
    """Return ``({code: until when and why it is muted}, a remark on each mute that has expired)`` of a host."""
    here = sorted(mute for mute in mutes if any(fnmatch.fnmatchcase(host, pattern) for pattern in mute.hosts))
    now = now or datetime.datetime.now(datetime.timezone.utc)
    muted = {mute.code: f"muted until {mute.end}: {mute.reason}" for mute in sorted(here, key=lambda mute: mute.until) if mute.until > now}
    expired = [
        f"the mute of {mute.code} ({mute.reason}) expired at {mute.end}; remove it from {SETTING}, or set a later time"
        for mute in here
        if mute.until <= now and mute.code not in muted
    ]
    return muted, coded("NPU_MUTE_EXPIRED", expired)
