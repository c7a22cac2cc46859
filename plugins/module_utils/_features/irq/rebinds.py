# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the units of a host put each interrupt, workqueue and thread back, and which of them they restored no more.

Where another program moves an object each time, restoring it forever helps nobody and hides that program. The units stop after some
times within an hour, and say who it is. A bind by hand, a driver that is loaded again, and a boot each begin again: the counts lie
below ``/run``, because after a boot everything has to be bound, whatever happened before. Times are those since the boot, which no step of
the wall clock changes.

What the units restored since the boot is counted for metrics, too: counters of Prometheus begin again at a boot like those of the kernel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Container, Iterable

from ..._host.host import Host
from ..._kernel.processes import BOOT
from ..._base.outside import json_of, require_shape
from .affinity import Row
from .feature import COUNTERS, REBINDS

if TYPE_CHECKING:
    from typing import List, TypedDict

    class Counts(TypedDict, total=False):
        """When an object was restored since a boot, and of one that is left alone since when, after how many times and who moves it."""

        boot: str
        times: List[int]
        since: int
        count: int
        who: str


CHECK, DRIVER = "check", "driver"
"""Who began: the unit of all NPUs at boot and by its timer, or that of one PCI function, which udev starts."""
WITHIN = 3600


class Rebinds:
    """The counts of a host. With a ``limit`` of 0 nothing comes to be left where it is, and what is so already is known all the same."""

    def __init__(self, host: Host, limit: int = 0) -> None:
        self.host, self.limit = host, limit
        self.now = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        self.boot = host.read(BOOT) or ""
        self.stopped: list[tuple[str, str]] = []
        """``(pci, key)`` of what this run is the first one not to restore, and ``who`` moves it."""
        self.who = ""
        self._suspect: Callable[[str], str] | None = None
        self._text = host.read(REBINDS) or "{}"
        self._counts = _parsed(self._text)

    def why_left(self, pci: str, key: str) -> str:
        """Return why an object that was moved is not restored, or '' where it is."""
        entry: Counts = self._counts.get(pci, {}).get(key, {})
        times = self._times(entry)
        if 0 < self.limit <= len(times) and self.now - times[-1] < WITHIN:
            if self._suspect is None:
                from .irqbalance import suspect  # needed by a run that gives up only

                self._suspect = suspect(self.host)
            self.who = self._suspect(pci)
            entry = self._counts[pci][key] = {"since": int(time.time()), "count": len(times), "who": self.who}
            self.stopped.append((pci, key))
        if "since" not in entry:
            return ""
        since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(entry["since"]))
        text = "was bound %d times within an hour, moved again each time, and is left alone since %s; the program that moves it is %s"
        return text % (entry["count"], since, entry["who"])

    def _times(self, entry: Counts) -> list[int]:
        """Return when an object was restored, by what was counted since the boot."""
        return entry.get("times") or [] if entry.get("boot") == self.boot else []

    def note(self, rows: Iterable[Row]) -> None:
        """Count what a run restored, and write the counts where they changed."""
        for row in rows:
            for step in row.all_steps():
                if step.before != step.after:
                    entry = self._counts.setdefault(row.pci, {}).setdefault(step.key, {})
                    times = [at for at in self._times(entry) if self.now - at < WITHIN] + [self.now]
                    entry.update({"times": times, "boot": self.boot})
        if self._counts != _parsed(self._text):
            from ..._state.files import write_note  # seldom needed, and what it imports costs a third of a start

            write_note(self.host, REBINDS, self._counts)


def forget(host: Host, functions: Container[str]) -> None:
    """Begin to count again for PCI functions."""
    before = _parsed(host.read(REBINDS) or "{}")
    after = {function: entries for function, entries in before.items() if function not in functions}
    if after != before or host.exists(REBINDS) and not after:
        from ..._state.files import write_note

        write_note(host, REBINDS, after)


def _parsed(text: str) -> dict[str, dict[str, Counts]]:
    """Return the counts in a text of the file, or none if it is not managed, because counts are no reason to fail."""
    try:
        counts: dict[str, dict[str, Counts]] = json_of(text)
        require_shape(counts, {str: {str: {"boot?": str, "times?": [int]}}}, "it")
        for entries in counts.values():
            for entry in entries.values():
                if "since" in entry:
                    require_shape(entry, {"since": int, "count": int, "who": str}, "it")
                    time.gmtime(entry["since"])
    except (OSError, OverflowError, ValueError):
        return {}
    return counts


def totals(host: Host) -> dict[str, dict[str, int]]:
    """Return ``{CHECK or DRIVER: {runs, interrupts}}`` since the boot: runs that moved anything, and the interrupts that they moved."""
    nothing = {trigger: {"runs": 0, "interrupts": 0} for trigger in (CHECK, DRIVER)}
    try:
        counters = json_of(host.read(COUNTERS) or "{}")
        return {trigger: {key: int(counters.get(trigger, zeros)[key]) for key in zeros} for trigger, zeros in nothing.items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return nothing


def add_to_totals(host: Host, trigger: str, interrupts: int) -> None:
    """Count a run that moved something, and so many interrupts. The caller holds the lock of the host."""
    from ..._state.files import write_note

    after = totals(host)
    after[trigger]["runs"] += 1
    after[trigger]["interrupts"] += interrupts
    write_note(host, COUNTERS, after)
