# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes have and lack of the huge pages that are wanted, why, and what the kernel command line has to do with it. Reads only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ..._base.findings import CHANGED_SETTINGS, EDIT, SHORT_OF_MEMORY, Cause, coded
from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.hugepages import BY_NODE, GIGANTIC, Pages, pages, path_of, place_of, reserved, size_text
from ..._kernel.machine import is_since
from ..feature import Comparing, service
from .feature import GRANTED

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive

COMMAND_LINE = "/proc/cmdline"
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
    tried, found, (size, counts) = granted(host), [], counts_of(wanted)
    for node, count in counts.items():
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
    own, counts = counts_of(wanted)
    usual = _DEFAULT.search(host.read("/proc/meminfo") or "")
    size = int(usual.group(1)) if usual else None
    for key, value in _WORDS.findall(host.read(COMMAND_LINE) or ""):
        if key == "hugepagesz":
            size = size_of(value) if _SIZE.match(value) else None
        elif size == own and counts and size < GIGANTIC:
            return [
                "the kernel command line has hugepages=%s for pages of %s; %s sets other numbers at each boot, so remove it there"
                % (value, size_text(size), _SERVICE)
            ]
    return []


def compare(comparing: Comparing, wanted: HugePagesLive) -> None:
    """Compare the huge pages of each node. More than wanted is drift unless they are in use, which is a remark.

    Nor is it where the kernel cannot reserve pages of a gigantic size by node: nodes that need fewer than others have the same number.
    """
    host, findings = comparing.host, comparing.findings
    size, counts = counts_of(wanted)
    short = {lack.node: lack for lack in shortages(host, wanted)}
    for node, count in counts.items():
        name = "huge pages of %s on node %d" % (size_text(size), node)
        lack, now = short.get(node), pages(host, size, node)
        if lack:
            word = SHORT_OF_MEMORY if lack.tried or lack.gigantic else EDIT
            findings.differs("hugepages", name, str(count), str(lack.found or 0), Cause(word, lack.remedy))
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
