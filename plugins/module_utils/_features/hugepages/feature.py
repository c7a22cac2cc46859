# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hugepages: huge pages on the memory nodes of NPUs."""

from __future__ import annotations

from ..._base.findings import SHORT_OF_MEMORY, Code
from ..feature import compared_where_wanted, later, value_feature

GRANTED = "/run/npu-affinity/hugepages.json"
"""What the kernel granted since the boot: ``{path: [wanted, granted]}``."""

FEATURE = value_feature(
    "hugepages",
    meaning="A memory node has another number of huge pages than planned.",
    effect="reserves huge pages near NPUs",
    kind=later("hugepages.pages:HugePages"),
    live={"size": int, "nodes": {str: int}},
    leftovers=(GRANTED,),
    compare=compared_where_wanted("hugepages", "hugepages.pages:compare"),
    codes={"NPU_HUGEPAGES_SHORT": Code("A memory node has no room for the planned huge pages.", [SHORT_OF_MEMORY])},
)
