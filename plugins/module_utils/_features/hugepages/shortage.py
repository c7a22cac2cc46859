# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes lack of the huge pages that are wanted, why, and what the kernel command line has to do with it. Reads only."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple

from ..._host.host import Host
from ..._kernel.hugepages import GIGANTIC, pages, size_text
from .places import HUGEPAGES_SERVICE
from .setting import counts_of, granted

COMMAND_LINE = "/proc/cmdline"
_WORDS = re.compile(r"(?<!\S)(hugepagesz|hugepages)=(\S+)")
_SIZE = re.compile(r"(\d+)([KMG])\Z", re.IGNORECASE)
_DEFAULT = re.compile(r"^Hugepagesize:\s*(\d+) kB", re.MULTILINE)
_FACTORS = {"K": 1, "M": 1 << 10, "G": 1 << 20}


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
                "the memory and run systemctl restart %s" % HUGEPAGES_SERVICE
            )
        return "the number was lowered since, or not yet set after the boot; run systemctl restart %s" % HUGEPAGES_SERVICE

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
                found.append(Shortage(size, node, count, pool, tried.get((size, node)) == (count, pool)))
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
                % (value, size_text(size), HUGEPAGES_SERVICE)
            ]
    return []
