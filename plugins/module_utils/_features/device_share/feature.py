# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers can share the chips of a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices, Feature
from .places import DEVICE_SHARE_SERVICE, SECTION

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._base.findings import Code
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from .step import DeviceShare


def _step(host: Host, state: AppliedState, choices: Choices) -> DeviceShare | None:
    wanted = state["live"].get("device_share")
    if not wanted:
        return None
    from .step import DeviceShare

    return DeviceShare(host, wanted, state.get("npu_smi"))


def _release() -> type[Release]:
    from .release import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .switching import main

    return main(argv)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("device_share")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


def _codes() -> dict[str, Code]:
    from ..._base.findings import Code

    return {"NPU_DEVICE_SHARE_CHANGED": Code("Device share of a chip is not as planned.", kinds=["device_share"])}


def _check(data: dict[str, Any]) -> None:
    for card, chips in data["chips"].items():
        if not all(sections.is_number(number) for number in [card] + list(chips)):
            raise ValueError("'%s' is not a card with chips" % card)
        if not all(isinstance(enabled, (bool, type(None))) for enabled in chips.values()):
            raise ValueError("card %s has chips that are neither on nor off" % card)
    files = data.get("files", {})
    sections.check_paths(list(files))
    sections.check_files({path: record for path, record in files.items() if record is not None})


FEATURE = Feature(
    "device_share",
    owned=(UNIT_FOLDER + "/" + DEVICE_SHARE_SERVICE,),
    sections={SECTION: _check},
    programs=("npu-affinity-device-share*",),
    step=_step,
    release=_release,
    program=_program,
    compare=_compare,
    codes=_codes,
)
