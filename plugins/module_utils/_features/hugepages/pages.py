# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many huge pages NUMA nodes have: as far as the kernel grants them, and never below what is in use.

The kernel looks for free memory when the number is written, and silently stops where it finds none. It therefore gets the number in parts,
and only as many are requested as leave a node the memory that everything else needs. Where it stops, the number is written again for
some seconds: memory that it moves or writes out meanwhile is free then (openshift-kni/performance-addon-operators issue 279).
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Mapping, Sequence

from ..._base.findings import coded
from ..._host.host import Host
from ..._kernel.cpus import NODE_FOLDER, memory_mib
from ..._kernel.hugepages import GIGANTIC, kept_free, pages, path_of, place_of, size_text
from ..._kernel.memory import room_of_nodes
from ..._state.value_kind import Change, Setting, Values
from .feature import GRANTED
from .shortage import counts_of, granted, lowest, on_command_line, shortages, unreached

_PART = 1 << 20
"""KiB of pages in one request to the kernel."""
_SECONDS, _SECONDS_AT_BOOT = 120, 300
AGAIN, PAUSE = 3.0, 0.2
"""Seconds for which a short number is written again, and between two writes."""


class HugePages(Values):
    """The huge pages of nodes. Those of a gigantic size are only compared.

    A node for which the kernel has granted less since the boot is left alone until a :meth:`retry`.
    """

    def __init__(self) -> None:
        setting = Setting(NODE_FOLDER + "/node*/hugepages/hugepages-*kB/nr_hugepages")
        Values.__init__(self, "hugepages", {"hugepages": setting}, "huge pages")
        self._again = False
        self._seconds = _SECONDS
        self._end: float | None = None
        self._out_of_time: set[str] = set()

    def retry(self, boot: bool = False) -> None:
        self._again, self._seconds = True, _SECONDS_AT_BOOT if boot else _SECONDS

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        size, counts = counts_of(live)
        return {path_of(size, node): str(count) for node, count in counts.items() if size < GIGANTIC}

    def check(self, recorded: Mapping[str, Any]) -> None:
        Values.check(self, recorded)
        for key, entry in recorded.items():
            place_of(key)
            if not all(text.isdecimal() for text in [entry["original"], *entry["given"]]):
                raise ValueError("%r is not a number of huge pages" % entry)

    def read(self, host: Host, key: str) -> str | None:
        now = pages(host, *place_of(key))
        return str(now.pool) if now else None

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        now = pages(host, *place_of(key))
        if now is None or int(before) < int(wanted) and not self._again and granted(host).get(key) == [int(wanted), int(before)]:
            return before
        return str(max(int(wanted), lowest(host, place_of(key)[0], now)))

    def planned(self, host: Host, changes: list[Change], check: bool) -> list[Change]:
        """Return changes in the order in which the memory of pages that go can become pages of another size.

        With ``check`` they become what memory allows. Fragmented memory shows only in a change.
        """
        ordered = sorted(changes, key=lambda change: int(change.after) > int(change.before))
        if not check:
            return ordered
        done, freed = [], dict.fromkeys((place_of(change.key)[1] for change in changes), 0)
        for change in ordered:
            size, node = place_of(change.key)
            before, after = int(change.before), int(change.after)
            after = min(after, before + max(0, _room(host, change.key, after, freed[node]))) if after > before else after
            freed[node] += (before - after) * size << 10
            done.append(change._replace(after=str(after)))
        return [change for change in done if change.before != change.after]

    def write(self, host: Host, key: str, value: str) -> str:
        """Set a number in parts until the time is over, and return what was reached."""
        now, goal, size = int(self.read(host, key) or 0), int(value), place_of(key)[0]
        self._end = self._end or time.monotonic() + self._seconds
        if goal < now:
            return str(self._put(host, key, goal))
        until = 0.0
        while now < goal:
            if time.monotonic() >= self._end:
                self._out_of_time.add(key)
                break
            part = min(goal - now, max(1, _PART // size), _room(host, key, goal))
            if part < 1:
                break
            asked = now + part
            now = self._put(host, key, asked)
            if now >= asked:
                until = 0.0
                continue
            until = until or time.monotonic() + AGAIN
            if time.monotonic() >= until:
                break
            time.sleep(PAUSE)
        return str(now)

    def _put(self, host: Host, key: str, count: int) -> int:
        try:
            host.set_attribute(key, str(count))
        except OSError as error:
            raise ValueError("%s does not take %d: %s" % (key, count, error.strerror or error))
        return int(self.read(host, key) or 0)

    def done(self, host: Host, changes: Sequence[Change], undone: bool = False) -> None:
        """Keep until the next boot what the kernel granted. Without that note, if ``/run`` is full, the next bind tries again."""
        if not changes:
            return
        from ..._state.files import put_note

        self._end, keys = None, {change.key for change in changes}
        known = {key: numbers for key, numbers in granted(host).items() if key not in keys}
        if not undone:
            known.update((change.key, [int(change.wanted), int(change.after)]) for change in changes if change.key not in self._out_of_time)
        with contextlib.suppress(OSError):
            put_note(host, GRANTED, known)

    def unreached(self, key: str, original: str, value: str, since: str) -> list[str]:
        return unreached(key, int(original), int(value), since)

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        """Say what is short for good, which is not what this run is about to set, and which nodes keep more pages than wanted."""
        from ..._state.values import entries

        coming = {change.key for change in changes if ahead}
        short = [lack for lack in shortages(host, live) if path_of(lack.size, lack.node) not in coming or lack.tried]
        wanted, reached, kept = self.wanted(host, live), {change.key: change.after for change in changes}, []
        originals = {key: entry["original"] for key, entry in entries(host, self).items()}
        for key, number in sorted({**originals, **wanted}.items(), key=lambda item: place_of(item[0])):
            value = reached.get(key) or self.read(host, key)
            if value and (key not in wanted or int(value) > int(number)):
                kept += unreached(key, int(number), int(value), "" if key in wanted else "the first bind")
        found = coded("NPU_HUGEPAGES_SHORT", [lack.sentence for lack in short]) + coded("NPU_HUGEPAGES_CHANGED", kept)
        return found + coded("NPU_KERNEL_CONTRADICTS", on_command_line(host, live))

    def label(self, host: Host, key: str) -> tuple[str, str, int]:
        return "node %d" % place_of(key)[1], "", 1

    def shown(self, key: str, value: str) -> str:
        return "%s huge pages of %s" % (value, size_text(place_of(key)[0]))


def _room(host: Host, key: str, most: int, freed: int = 0) -> int:
    """Return how many more pages a node can hold so that enough memory is left for everything else; ``freed`` bytes come before."""
    size, node = place_of(key)
    room = room_of_nodes(host).get(node)
    if room is None:
        return most
    memory = memory_mib(host, "%s/node%d/meminfo" % (NODE_FOLDER, node)) or 0
    return (room + freed - kept_free(memory << 20)) // (size << 10)
