# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the huge pages of NUMA nodes with what is wanted. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.findings import CHANGED_SETTINGS, EDIT, SHORT_OF_MEMORY, Cause, coded
from ..._kernel.hugepages import BY_NODE, GIGANTIC, pages, path_of, size_text
from ..._kernel.machine import is_since
from ..comparing import Comparing
from .shortage import counts_of, granted, lowest, shortages, unreached

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive
    from ..._host.host import Host

_KIND = "hugepages"


def compare(comparing: Comparing, wanted: HugePagesLive) -> None:
    """Compare the huge pages of each node. More than wanted is drift unless they are in use, which is a remark.

    Nor is it where the kernel cannot reserve pages of a gigantic size by node: nodes that need fewer than others have the same number.
    """
    host, findings = comparing.host, comparing.findings
    short = {(lack.size, lack.node): lack for lack in shortages(host, wanted)}
    for size, counts in counts_of(wanted).items():
        for node, count in sorted(counts.items()):
            name = "huge pages of %s on node %d" % (size_text(size), node)
            lack, now = short.get((size, node)), pages(host, size, node)
            if lack:
                word = SHORT_OF_MEMORY if lack.tried or lack.gigantic else EDIT
                findings.differs(_KIND, name, str(count), str(lack.found or 0), Cause(word, lack.remedy))
                continue
            by_node = size < GIGANTIC or is_since(host, *BY_NODE)
            if now and by_node and now.pool > count and lowest(host, size, now) < now.pool:
                findings.differs(_KIND, name, str(count), str(now.pool), _surplus(host, size, node, now.pool))
            else:
                findings.same(_KIND, name)
                kept = now and now.pool > count and size < GIGANTIC
                findings.remarks += coded("NPU_HUGEPAGES_CHANGED", unreached(path_of(size, node), count, now.pool) if now and kept else ())


def _surplus(host: Host, size: int, node: int, number: int) -> Cause:
    """Return why a node has more pages than wanted: nobody added any to those that the last bind left."""
    if size >= GIGANTIC:
        return Cause(EDIT, "reserved by the kernel command line or another program, which a bind does not change; correct it and reboot")
    if granted(host).get(path_of(size, node), ())[1:] == [number]:
        return Cause(CHANGED_SETTINGS, "processes used them when a bind was to lower the number; bind again")
    return Cause(EDIT, "raised by hand, or by another program such as sysctl (vm.nr_hugepages)")
