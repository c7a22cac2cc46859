# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature adopt: running work that holds NPUs on the CPUs of these NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices, Feature
from ..watching import WATCH_SERVICE
from .places import DROP_INS, SECTION, SETTINGS

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.release import Release
    from ..watching import Watching
    from .step import Adopt


def _step(host: Host, state: AppliedState, choices: Choices) -> Adopt | None:
    plan, wanted = state["plan"], state["live"].get("adopt")
    if not (plan and wanted):
        return None
    from .step import Adopt

    return Adopt(host, plan, state["expected"], wanted, state)


def _release() -> type[Release]:
    from .release import Release

    return Release


def _watch(host: Host) -> Watching:
    from .watching import Watcher

    return Watcher(host)


def _check(data: Any) -> None:
    from .section import check

    check(data)


FEATURE = Feature(
    "adopt",
    live={"mode": str, "move_memory?": bool, "pods?": bool, "environment?": dict},
    owned=(SETTINGS, UNIT_FOLDER + "/" + WATCH_SERVICE, DROP_INS),
    sections={SECTION: _check},
    programs=(WATCH_SERVICE,),
    step=_step,
    release=_release,
    watch=_watch,
)
