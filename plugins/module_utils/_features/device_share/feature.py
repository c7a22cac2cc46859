# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature device_share: whether containers can share the chips of a card."""

from __future__ import annotations

from ..feature import compared_where_wanted, later, value_feature

FEATURE = value_feature(
    "device_share",
    meaning="Device share of a chip is not as planned.",
    effect="lets containers share NPUs",
    kind=later("device_share.sharing:Shares"),
    restore=later("device_share.sharing:Restore"),
    compare=compared_where_wanted("device_share", "device_share.sharing:compare"),
    compared=0,
)
