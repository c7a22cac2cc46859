# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers can share the chips of a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ..._installed import UNIT_FOLDER
from ..feature import Choices, Feature

if TYPE_CHECKING:
    from ..._host import Host
    from ..._state.release import Release
    from .step import DeviceShare

SECTION = "device_share"
DEVICE_SHARE_SERVICE = "npu-affinity-device-share.service"


def _step(host: Host, state: Mapping[str, Any], choices: Choices) -> DeviceShare | None:
    wanted = state["live"].get("device_share")
    if not wanted:
        return None
    from .step import DeviceShare

    return DeviceShare(host, wanted, choices.npu_smi)


def _release() -> type[Release]:
    from .release import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .switching import main

    return main(argv)


FEATURE = Feature(
    "device_share",
    owned=(UNIT_FOLDER + "/" + DEVICE_SHARE_SERVICE,),
    sections=(SECTION,),
    programs=("npu-affinity-device-share*",),
    step=_step,
    release=_release,
    program=_program,
)
