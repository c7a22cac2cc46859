# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one watcher does for several features: it places work as soon as that has a device, and now and then looks at everything."""

from __future__ import annotations

from typing import Collection, Iterable, Mapping, Optional, Sequence

from .._base.outside import say
from .._base.table import count
from .._host.host import Host
from .._state.log import log_change

WATCH_SERVICE = "npu-affinity-watch.service"
PROGRAM = "npu_affinity watch"
Births = Mapping[int, Optional[Collection[int]]]
"""Processes that have executed a program or opened a device; with the threads that got a name, where that alone happened."""


class Watching:
    """The part of a feature. It raises nothing: the journal of the service names what fails. What it has said once, it says again only
    when that has changed.

    ``pods``: whether new groups of pods lead to a look; ``again``: whether its last look left something to one that follows soon.
    ``descriptor`` is that of events of its own, -1 without any.
    """

    pods = again = False

    def __init__(self, host: Host) -> None:
        self.host = host
        self._reported: set[str] = set()

    @property
    def descriptor(self) -> int:
        return -1

    @property
    def is_urgent(self) -> bool:
        """Whether it must learn of opened devices at once, however much CPU time placing took."""
        return False

    def look(self) -> bool:
        """Look at everything, and return whether the feature is on."""
        raise NotImplementedError

    def concerns(self, group: str) -> bool:
        """Whether a process is placed as soon as it executes a program, by the text of its ``cgroup`` in procfs."""
        return False

    def knows(self, pid: int) -> bool:
        """Whether threads of a process are placed by their names."""
        return False

    def born(self, births: Births) -> bool:
        """Place processes and threads, and return whether a look at everything should follow soon."""
        raise NotImplementedError

    def announced(self) -> bool:
        """Read its own events, and return whether a look at everything should follow soon."""
        return False

    def end(self) -> None:
        """Leave the host in a state that needs no watcher, after the service has ended."""

    def _log(self, lines: Sequence[str], of: str) -> None:
        """Say what was changed, a line each, and write it to the journal of the host."""
        if lines:
            log_change(self.host, "rebind", PROGRAM, "%s of %s" % (count(len(lines), "change"), of), lines)
        for line in lines:
            say(line)

    def _say(self, sentences: Iterable[str], is_all: bool) -> None:
        """Say what is new among sentences; ``is_all``: they are on everything, and no other one holds any more."""
        current = set(sentences)
        for sentence in sorted(current - self._reported):
            say(sentence)
        self._reported = current if is_all else self._reported | current
