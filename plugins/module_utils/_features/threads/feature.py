# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature threads: the threads of NPU processes on the CPUs of their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices, Feature
from ..watching import WATCH_SERVICE
from .places import PROGRESS, SETTINGS

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from ..watching import Watching
    from .step import Threads


def _step(host: Host, state: AppliedState, choices: Choices) -> Threads | None:
    plan, wanted = state["plan"], state["live"].get("threads")
    if not (plan and wanted):
        return None
    from .step import Threads

    return Threads(host, plan, wanted)


def _release() -> type[Release]:
    from .release import Release

    return Release


def _watch(host: Host) -> Watching:
    from .watching import Threads

    return Threads(host)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("threads")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


FEATURE = Feature(
    "threads",
    live={"processes": [dict], "patterns": dict},
    owned=(SETTINGS, UNIT_FOLDER + "/" + WATCH_SERVICE),
    programs=(WATCH_SERVICE,),
    leftovers=(PROGRESS,),
    step=_step,
    release=_release,
    watch=_watch,
    compare=_compare,
)
