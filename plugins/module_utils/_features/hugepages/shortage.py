# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes have and lack of the huge pages that are wanted, why, and what the kernel command line has to do with it. Reads only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Mapping, NamedTuple

from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.hugepages import GIGANTIC, Pages, pages, path_of, place_of, reserved, size_text
from ..value_feature import service
from .places import GRANTED

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive

COMMAND_LINE = "/proc/cmdline"
_SERVICE = service("hugepages")
_WORDS = re.compile(r"(?<!\S)(hugepagesz|hugepages)=(\S+)")
_SIZE = re.compile(r"(\d+)([KMG])\Z", re.IGNORECASE)
_DEFAULT = re.compile(r"^Hugepagesize:\s*(\d+) kB", re.MULTILINE)
_FACTORS = {"K": 1, "M": 1 << 10, "G": 1 << 20}
Counts = Dict[int, Dict[int, int]]
"""``{size in KiB: {node: pages}}``."""


def counts_of(wanted: Mapping[str, Any] | HugePagesLive) -> Counts:
    """Return what a desired state, or the feature's file, wants. Raises ``ValueError`` for another shape."""
    try:
        counts = {int(node): int(count) for node, count in wanted["nodes"].items()}
        size = int(wanted["size"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("the requested huge pages have an unexpected form (%s: %s)" % (type(error).__name__, error))
    if size < 1 or any(number < 0 for number in [*counts, *counts.values()]):
        raise ValueError("the requested huge pages have a negative number")
    return {size: counts}


def granted(host: Host) -> dict[str, list[int]]:
    """Return ``{path: [wanted, granted]}`` of this boot; nothing of a broken note."""
    try:
        found: dict[str, list[int]] = json_of(host.read(GRANTED) or "{}")
        require_shape(found, {str: [int]}, "it")
        return found
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
    """A node with fewer huge pages than are wanted: ``found`` of ``wanted``, None where the kernel does not offer them there.

    ``tried``: whether the kernel granted no more when it was asked since the boot.
    """

    size: int
    node: int
    wanted: int
    found: int | None
    tried: bool

    @property
    def gigantic(self) -> bool:
        return self.size >= GIGANTIC

    @property
    def remedy(self) -> str:
        if self.found is None:
            return "the kernel does not offer huge pages of this size there; check the setting"
        if self.gigantic:
            return "only the kernel command line reserves pages of this size reliably; set hugepagesz= and hugepages= there and reboot"
        if self.tried:
            return (
                "the rest of its memory is in use, fragmented, or kept free for other programs; reboot to get the rest, or stop what uses "
                "the memory and run systemctl restart %s" % _SERVICE
            )
        return "the number was lowered since, or not yet set after the boot; run systemctl restart %s" % _SERVICE

    @property
    def sentence(self) -> str:
        numbers = "{:,} of {:,}".format(self.found or 0, self.wanted)
        return "node %d: %s huge pages of %s; %s" % (self.node, numbers, size_text(self.size), self.remedy)


def shortages(host: Host, wanted: Mapping[str, Any]) -> list[Shortage]:
    """Return what nodes lack, by size and node."""
    tried, found = granted(host), []
    for size, counts in counts_of(wanted).items():
        for node, count in sorted(counts.items()):
            now = pages(host, size, node)
            if now is None or now.pool < count:
                pool = now.pool if now else None
                found.append(Shortage(size, node, count, pool, tried.get(path_of(size, node)) == [count, pool]))
    return found


def size_of(text: str) -> int:
    """Return a size such as ``2M`` in KiB. Raises ``ValueError`` for another text."""
    match = _SIZE.match(text)
    if not match or not int(match.group(1)):
        raise ValueError("%r is not a size of huge pages, such as 2M or 1G" % text)
    return int(match.group(1)) * _FACTORS[match.group(2).upper()]


def on_command_line(host: Host, wanted: Mapping[str, Any]) -> list[str]:
    """Return a sentence where the kernel command line sets huge pages of the size that the feature sets, too."""
    sizes = [size for size, counts in counts_of(wanted).items() if counts and size < GIGANTIC]
    usual = _DEFAULT.search(host.read("/proc/meminfo") or "")
    size = int(usual.group(1)) if usual else None
    for key, value in _WORDS.findall(host.read(COMMAND_LINE) or ""):
        if key == "hugepagesz":
            size = size_of(value) if _SIZE.match(value) else None
        elif size in sizes:
            return [
                "the kernel command line has hugepages=%s for pages of %s; %s sets other numbers at each boot, so remove it there"
                % (value, size_text(size), _SERVICE)
            ]
    return []
