# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the huge pages of NUMA nodes with what is wanted. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._base.findings import EDIT, SHORT_OF_MEMORY, Cause
from ..._kernel.hugepages import pages, size_text
from ..comparing import Comparing
from .setting import counts_of
from .shortage import shortages

if TYPE_CHECKING:
    from ..._base.documents import HugePagesLive

_KIND = "hugepages"


def compare(comparing: Comparing, wanted: HugePagesLive) -> None:
    """Compare the huge pages of each node. More than wanted is drift unless they are in use."""
    host, findings = comparing.host, comparing.findings
    short = {(lack.size, lack.node): lack for lack in shortages(host, wanted)}
    for size, counts in counts_of(wanted).items():
        for node, count in sorted(counts.items()):
            name = "huge pages of %s on node %d" % (size_text(size), node)
            lack, now = short.get((size, node)), pages(host, size, node)
            if lack:
                word = SHORT_OF_MEMORY if lack.tried or lack.gigantic else EDIT
                findings.differs(_KIND, name, str(count), str(lack.found or 0), Cause(word, lack.remedy))
            elif now and now.pool > max(count, now.used):
                cause = Cause(EDIT, "raised by hand, or by another program such as sysctl (vm.nr_hugepages)")
                findings.differs(_KIND, name, str(count), str(now.pool), cause)
            else:
                findings.same(_KIND, name)
