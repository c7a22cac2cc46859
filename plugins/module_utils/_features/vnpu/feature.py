# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature vnpu: directories and files for soft split of NPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ..feature import Choices, Feature

if TYPE_CHECKING:
    from ..._host import Host
    from ..._state.release import Release
    from ..._state.step import LiveStep

SECTION = "vnpu"


def _step(host: Host, state: Mapping[str, Any], choices: Choices) -> LiveStep | None:
    if state["live"].get("vnpu"):
        from .layout import SoftSplit

        return SoftSplit(host, state["live"]["vnpu"])
    if (state["live"].get("slices") or {}).get("vnpus") and state.get("soft_split"):
        from .presence import Presence

        return Presence(host, state["soft_split"])
    return None


def _release() -> type[Release]:
    from .layout import Release

    return Release


FEATURE = Feature("vnpu", sections=(SECTION,), step=_step, first=True, release=_release)
