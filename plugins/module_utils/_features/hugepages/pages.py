# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many huge pages NUMA nodes have: as far as the kernel grants them, and never below what is in use; what nodes lack, and why.

The kernel looks for free memory when the number is written, and silently stops where it finds none. It therefore gets the number in parts,
and only as many are requested as leave a node the memory that everything else needs. Where it stops, the number is written again for
some seconds: memory that it moves or writes out meanwhile is free then (openshift-kni/performance-addon-operators issue 279).
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from ..._base.findings import CHANGED_SETTINGS, EDIT, SHORT_OF_MEMORY, Cause, coded
from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.cpus import NODE_FOLDER, memory_mib
from ..._kernel.hugepages import BY_NODE, GIGANTIC, Pages, kept_free, pages, path_of, place_of, reserved, size_text
from ..._kernel.machine import is_since
from ..._kernel.memory import room_of_nodes
from ..._state.value_kind import Change, Setting, Values
from ..feature import Comparing, service
from .feature import GRANTED

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive

COMMAND_LINE = "/proc/cmdline"
_PART = 1 << 20
"""KiB of pages in one request to the kernel."""
_SECONDS, _SECONDS_AT_BOOT = 120, 300
AGAIN, PAUSE = 3.0, 0.2
"""Seconds for which a short number is written again, and between two writes."""
_SERVICE = service("hugepages")
_WORDS = re.compile(r"(?<!\S)(hugepagesz|hugepages)=(\S+)")
_SIZE = re.compile(r"(\d+)([KMG])\Z", re.IGNORECASE)
_DEFAULT = re.compile(r"^Hugepagesize:\s*(\d+) kB", re.MULTILINE)
_FACTORS = {"K": 1, "M": 1 << 10, "G": 1 << 20}


def counts_of(wanted: Mapping[str, Any] | HugePagesLive) -> tuple[int, dict[int, int]]:
    """Return the size in KiB and ``{node: pages}`` that a desired state, or the feature's file, wants, by ascending nodes.

    Raises ``ValueError`` for another shape.
    """
    try:
        counts = dict(sorted((int(node), int(count)) for node, count in wanted["nodes"].items()))
        size = int(wanted["size"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("the requested huge pages have an unexpected form (%s: %s)" % (type(error).__name__, error))
    if size < 1 or any(number < 0 for number in [*counts, *counts.values()]):
        raise ValueError("the requested huge pages have a negative number")
    return size, counts


def granted(host: Host) -> dict[str, list[int]]:
    """Return ``{path: [wanted, granted]}`` of this boot; nothing of a broken note."""
    try:
        note: dict[str, list[int]] = json_of(host.read(GRANTED) or "{}")
        require_shape(note, {str: [int]}, "it")
        return note
    except ValueError:
        return {}


def lowest(host: Host, size: int, now: Pages) -> int:
    """Return the fewest pages that a node can have now: those that processes use, or were promised and have not used yet."""
    return min(now.pool, now.used + min(now.free, reserved(host, size)))


def unreached(key: str, wanted: int, number: int, since: str = "") -> list[str]:
    """Return a sentence where a node has, or would have, another number of pages than is wanted: the one before ``since``, if given."""
    size, node = place_of(key)
    which = "{:,} huge pages of {}".format(number, size_text(size))
    if number > wanted:
        before = ("had {:,} before %s" % since if since else "{:,} are wanted").format(wanted)
        return ["node %d keeps %s, because processes use them, and %s; stop these processes and run again" % (node, which, before)]
    if number == wanted:
        return []
    return [
        "node {} has {} of the {:,} that it had before {}; the rest of its memory is in use, fragmented, or kept free for other "
        "programs; stop what uses the memory, or reboot, and run again".format(node, which, wanted, since)
    ]


class Shortage(NamedTuple):
    """A node with fewer huge pages than are wanted: ``present`` of ``wanted``, None where the kernel does not offer them there.

    ``tried``: whether the kernel granted no more when it was asked since the boot.
    """

    size: int
    node: int
    wanted: int
    present: int | None
    tried: bool

    @property
    def remedy(self) -> str:
        if self.present is None:
            return "the kernel does not offer huge pages of this size there; check the setting"
        if self.size >= GIGANTIC:
            return "only the kernel command line reserves pages of this size reliably; set hugepagesz= and hugepages= there and reboot"
        if self.tried:
            return (
                "the rest of its memory is in use, fragmented, or kept free for other programs; reboot to get the rest, or stop what uses "
                "the memory and run systemctl restart %s" % _SERVICE
            )
        return "the number was lowered since, or not yet set after the boot; run systemctl restart %s" % _SERVICE

    @property
    def sentence(self) -> str:
        numbers = "{:,} of {:,}".format(self.present or 0, self.wanted)
        return "node %d: %s huge pages of %s; %s" % (self.node, numbers, size_text(self.size), self.remedy)


def shortages(host: Host, size: int, counts: Mapping[int, int]) -> list[Shortage]:
    """Return what nodes lack, by node."""
    tried, lacking = granted(host), []
    for node, count in counts.items():
        now = pages(host, size, node)
        if now is None or now.pool < count:
            pool = now.pool if now else None
            lacking.append(Shortage(size, node, count, pool, tried.get(path_of(size, node)) == [count, pool]))
    return lacking


def size_of(text: str) -> int:
    """Return a size such as ``2M`` in KiB. Raises ``ValueError`` for another text."""
    match = _SIZE.match(text)
    if not match or not int(match.group(1)):
        raise ValueError("%r is not a size of huge pages, such as 2M or 1G" % text)
    return int(match.group(1)) * _FACTORS[match.group(2).upper()]


def on_command_line(host: Host, size: int) -> list[str]:
    """Return a sentence where the kernel command line sets huge pages of the size that the feature sets, too."""
    default = _DEFAULT.search(host.read("/proc/meminfo") or "")
    its_size = int(default.group(1)) if default else None
    for key, value in _WORDS.findall(host.read(COMMAND_LINE) or ""):
        if key == "hugepagesz":
            its_size = size_of(value) if _SIZE.match(value) else None
        elif its_size == size < GIGANTIC:
            return [
                "the kernel command line has hugepages=%s for pages of %s; %s sets other numbers at each boot, so remove it there"
                % (value, size_text(size), _SERVICE)
            ]
    return []


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
            goal_of_part = now + part
            now = self._put(host, key, goal_of_part)
            if now >= goal_of_part:
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
        from ..._state.files import write_note

        self._end, keys = None, {change.key for change in changes}
        note = {key: numbers for key, numbers in granted(host).items() if key not in keys}
        if not undone:
            note.update((change.key, [int(change.wanted), int(change.after)]) for change in changes if change.key not in self._out_of_time)
        with contextlib.suppress(OSError):
            write_note(host, GRANTED, note)

    def unreached(self, key: str, original: str, value: str, since: str) -> list[str]:
        return unreached(key, int(original), int(value), since)

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        """Say what is short for good, which is not what this run is about to set, and which nodes keep more pages than wanted."""
        from ..._state.values import entries

        coming, (size, counts) = {change.key for change in changes if ahead}, counts_of(live)
        short = [lack for lack in shortages(host, size, counts) if path_of(lack.size, lack.node) not in coming or lack.tried]
        wanted, reached, kept = self.wanted(host, live), {change.key: change.after for change in changes}, []
        originals = {key: entry["original"] for key, entry in entries(host, self).items()}
        for key, number in sorted({**originals, **wanted}.items(), key=lambda item: place_of(item[0])):
            value = reached.get(key) or self.read(host, key)
            if value and (key not in wanted or int(value) > int(number)):
                kept += unreached(key, int(number), int(value), "" if key in wanted else "the first bind")
        remarks = coded("NPU_HUGEPAGES_SHORT", [lack.sentence for lack in short]) + coded("NPU_HUGEPAGES_CHANGED", kept)
        return remarks + coded("NPU_KERNEL_CONTRADICTS", on_command_line(host, size) if counts else [])

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


def compare(comparing: Comparing, wanted: HugePagesLive) -> None:
    """Compare the huge pages of each node. More than wanted is drift unless they are in use, which is a remark.

    Nor is it where the kernel cannot reserve pages of a gigantic size by node: nodes that need fewer than others have the same number.
    """
    host, findings = comparing.host, comparing.findings
    size, counts = counts_of(wanted)
    short = {lack.node: lack for lack in shortages(host, size, counts)}
    for node, count in counts.items():
        name = "huge pages of %s on node %d" % (size_text(size), node)
        lack, now = short.get(node), pages(host, size, node)
        if lack:
            word = SHORT_OF_MEMORY if lack.tried or size >= GIGANTIC else EDIT
            findings.differs("hugepages", name, str(count), str(lack.present or 0), Cause(word, lack.remedy))
            continue
        by_node = size < GIGANTIC or is_since(host, *BY_NODE)
        if now and by_node and now.pool > count and lowest(host, size, now) < now.pool:
            findings.differs("hugepages", name, str(count), str(now.pool), _surplus(host, size, node, now.pool))
            continue
        findings.same("hugepages", name)
        if now and now.pool > count and size < GIGANTIC:
            findings.remarks += coded("NPU_HUGEPAGES_CHANGED", unreached(path_of(size, node), count, now.pool))


def _surplus(host: Host, size: int, node: int, number: int) -> Cause:
    """Return why a node has more pages than wanted: nobody added any to those that the last bind left."""
    if size >= GIGANTIC:
        return Cause(EDIT, "reserved by the kernel command line or another program, which a bind does not change; correct it and reboot")
    if granted(host).get(path_of(size, node), ())[1:] == [number]:
        return Cause(CHANGED_SETTINGS, "processes used them when a bind was to lower the number; bind again")
    return Cause(EDIT, "raised by hand, or by another program such as sysctl (vm.nr_hugepages)")
