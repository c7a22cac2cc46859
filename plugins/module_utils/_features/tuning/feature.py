# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature tuning: settings of the whole host that concern NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices, Feature
from .places import FILE, SECTION, TUNING_SERVICE

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._base.findings import Code
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from .step import HostSettings


def _step(host: Host, state: AppliedState, choices: Choices) -> HostSettings | None:
    wanted = state["live"].get("tuning")
    if wanted is None:
        return None
    from .step import HostSettings

    return HostSettings(host, wanted)


def _release() -> type[Release]:
    from .host_settings import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .host_settings import main

    return main(argv)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("tuning")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


def _codes() -> dict[str, Code]:
    from ..._base.findings import Code

    return {"NPU_TUNING_CHANGED": Code("A host setting is not as planned.", kinds=["tuning"])}


def _check(data: dict[str, Any]) -> None:
    for path, value in data.items():
        sections.check_path(path)
        if not path.startswith(("/proc/sys/", "/sys/")) or not isinstance(value, str):
            raise ValueError("'%s' is not a setting" % path)


FEATURE = Feature(
    "tuning",
    owned=(FILE, UNIT_FOLDER + "/" + TUNING_SERVICE),
    sections={SECTION: _check},
    programs=("npu-affinity-tuning*",),
    step=_step,
    first=True,  # what is dropped is known by the file of the last run
    release=_release,
    program=_program,
    compare=_compare,
    compared=-1,
    codes=_codes,
)
