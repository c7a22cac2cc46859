# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages of each NUMA node, and how much memory of a node they may take.

Sources: Linux ``Documentation/admin-guide/mm/hugetlbpage.rst`` and ``Documentation/ABI/testing/sysfs-kernel-mm-hugepages``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .._host.host import Host
from .cpus import NODE_FOLDER, numbers

GIGANTIC = 1 << 20
"""The size in KiB from which the kernel hardly ever finds a page after the boot: its command line is the place for those."""
BY_NODE = (5, 16)
"""The first Linux whose command line takes huge pages by node (``hugepages=0:4,1:4``); others spread them evenly over all nodes."""
_MOST_KEPT = 8 << 30
_POOLS = "/sys/kernel/mm/hugepages"
_PLACE = re.compile(r"%s/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages\Z" % NODE_FOLDER)
_SIZE = re.compile(r"hugepages-(\d+)kB\Z")


class Pages(NamedTuple):
    """Huge pages of one size on one node. ``surplus`` are those that the kernel gives back by itself when their process ends."""

    total: int
    free: int
    surplus: int

    @property
    def pool(self) -> int:
        """The pages that stay, in use or not: the value of ``nr_hugepages``."""
        return self.total - self.surplus

    @property
    def used(self) -> int:
        return self.total - self.free


def path_of(size: int, node: int) -> str:
    """Return the file that sets the number of huge pages of ``size`` KiB on a node."""
    return "%s/node%d/hugepages/hugepages-%dkB/nr_hugepages" % (NODE_FOLDER, node, size)


def place_of(path: str) -> tuple[int, int]:
    """Return size and node of such a file. Raises ``ValueError`` for another one."""
    match = _PLACE.match(path)
    if not match:
        raise ValueError("%s does not set huge pages" % path)
    return int(match.group(2)), int(match.group(1))


def pages(host: Host, size: int, node: int) -> Pages | None:
    """Return the huge pages of a size on a node, or None where the kernel does not offer them."""
    path = path_of(size, node)
    total = host.read_number(path)
    if total is None:
        return None
    free, surplus = (host.read_number(path.replace("nr_hugepages", name)) for name in ("free_hugepages", "surplus_hugepages"))
    return Pages(total, free or 0, surplus or 0)


def reserved(host: Host, size: int) -> int:
    """Return the free pages of all nodes that processes were promised and have not used yet."""
    return host.read_number("%s/hugepages-%dkB/resv_hugepages" % (_POOLS, size)) or 0


def facts(host: Host) -> dict[str, dict[str, int]]:
    """Return ``{size in KiB: {node: pages}}`` of all sizes and nodes that the kernel offers, numbers as texts as in JSON."""
    sizes: dict[str, dict[str, int]] = {}
    for node in sorted(numbers(host, NODE_FOLDER, "node")):
        for size in map(_SIZE.match, host.names("%s/node%d/hugepages" % (NODE_FOLDER, node), "hugepages-*kB")):
            total = host.read_number(path_of(int(size.group(1)), node)) if size else None
            if size and total is not None:
                sizes.setdefault(size.group(1), {})[str(node)] = total
    return sizes


def kept_free(memory: int) -> int:
    """Return how many bytes of a node with so much memory must stay for everything else: a tenth, and never more than 8 GiB."""
    return min(memory // 10, _MOST_KEPT)


def size_text(size: int) -> str:
    """Return a size in KiB as text: ``2 MiB``."""
    return next("%d %s" % (size // factor, unit) for unit, factor in (("GiB", 1 << 20), ("MiB", 1 << 10), ("KiB", 1)) if size % factor == 0)
