# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature adopt: running work that holds NPUs on the CPUs of these NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices
from ..value_feature import value_feature
from ..watching import WATCH_SERVICE
from .places import DROP_INS, SETTINGS

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..watching import Watching
    from .step import Adopt
    from .work import Work


def _kind() -> Work:
    from .work import Work

    return Work()


def _step(host: Host, state: AppliedState, choices: Choices) -> Adopt | None:
    live = state["live"].get("adopt")
    if not (state["plan"] and live):
        return None
    from .step import of_state

    return of_state(host, state, live)


def _watch(host: Host) -> Watching:
    from .watching import Watcher

    return Watcher(host)


FEATURE = value_feature(
    "adopt",
    {},
    "",
    kind=_kind,
    live={"mode": str, "move_memory?": bool, "pods?": bool, "environment?": dict},
    owned=(SETTINGS, UNIT_FOLDER + "/" + WATCH_SERVICE, DROP_INS),
    programs=(WATCH_SERVICE,),
    step=_step,
    compare=None,
    compared=0,
    codes=None,
    program=None,
    watch=_watch,
)
