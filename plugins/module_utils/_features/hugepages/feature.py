# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hugepages: huge pages on the memory nodes of NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices, Feature
from .places import FILE, GRANTED, HUGEPAGES_SERVICE, SECTION

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._base.findings import Code
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from .step import HugePages


def _step(host: Host, state: AppliedState, choices: Choices) -> HugePages | None:
    wanted = state["live"].get("hugepages")
    if wanted is None:
        return None
    from .step import HugePages

    return HugePages(host, wanted)


def _release() -> type[Release]:
    from .release import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .program import main

    return main(argv)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("hugepages")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


def _codes() -> dict[str, Code]:
    from ..._base.findings import SHORT_OF_MEMORY, Code

    return {
        "NPU_HUGEPAGES_CHANGED": Code("A memory node has another number of huge pages than planned.", kinds=["hugepages"]),
        "NPU_HUGEPAGES_SHORT": Code("A memory node has no room for the planned huge pages.", [SHORT_OF_MEMORY]),
    }


def _check(data: dict[str, Any]) -> None:
    for size, nodes in data.items():
        for node, count in nodes.items():
            is_count = isinstance(count, int) and not isinstance(count, bool) and count >= 0
            if not (is_count and sections.is_number(size) and sections.is_number(node)):
                raise ValueError("%r is not a number of huge pages of node %s" % (count, node))


FEATURE = Feature(
    "hugepages",
    live={"size": int, "nodes": {str: int}},
    owned=(FILE, UNIT_FOLDER + "/" + HUGEPAGES_SERVICE),
    sections={SECTION: _check},
    programs=("npu-affinity-hugepages*",),
    leftovers=(GRANTED,),
    step=_step,
    release=_release,
    program=_program,
    compare=_compare,
    compared=-1,
    codes=_codes,
)
