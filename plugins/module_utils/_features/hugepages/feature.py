# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hugepages: huge pages on the memory nodes of NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..value_feature import code, value_feature
from .places import GRANTED

if TYPE_CHECKING:
    from ..._base.findings import Code
    from ..comparing import Comparing
    from .pages import HugePages

_CHANGED = "A memory node has another number of huge pages than planned."


def _kind() -> HugePages:
    from .pages import HugePages

    return HugePages()


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("hugepages")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


def _codes() -> dict[str, Code]:
    from ..._base.findings import SHORT_OF_MEMORY, Code

    return {
        **code("hugepages", _CHANGED),
        "NPU_HUGEPAGES_SHORT": Code("A memory node has no room for the planned huge pages.", [SHORT_OF_MEMORY]),
    }


FEATURE = value_feature(
    "hugepages",
    {},
    _CHANGED,
    kind=_kind,
    live={"size": int, "nodes": {str: int}},
    leftovers=(GRANTED,),
    compare=_compare,
    codes=_codes,
)
