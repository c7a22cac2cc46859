# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature adopt: running work that holds NPUs on the CPUs of these NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices, Feature
from .places import ADOPT_SERVICE, DROP_INS, SECTION

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.release import Release
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


def _program(argv: Sequence[str]) -> int:
    from .watching import main

    return main(argv)


def _check(data: Any) -> None:
    from .section import check

    check(data)


FEATURE = Feature(
    "adopt",
    live={"mode": str, "move_memory?": bool, "pods?": bool, "environment?": dict},
    owned=(UNIT_FOLDER + "/" + ADOPT_SERVICE, DROP_INS),
    sections={SECTION: _check},
    programs=(ADOPT_SERVICE,),
    step=_step,
    release=_release,
    program=_program,
)
