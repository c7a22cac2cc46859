# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers can share the chips of a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..value_feature import value_feature

if TYPE_CHECKING:
    from ..._state.release import Release
    from ..comparing import Comparing
    from .sharing import Shares


def _kind() -> Shares:
    from .sharing import Shares

    return Shares()


def _release() -> type[Release]:
    from .sharing import Release

    return Release


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("device_share")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


FEATURE = value_feature(
    "device_share", {}, "Device share of a chip is not as planned.", kind=_kind, release=_release, compare=_compare, compared=0
)
