# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature hard_vnpu: the hard vNPUs into which the driver splits NPUs."""

from __future__ import annotations

from ..feature import compared_where_wanted, later, value_feature

FEATURE = value_feature(
    "hard_vnpu",
    meaning="An NPU has other hard vNPUs than planned.",
    effect="creates hard vNPUs",
    kind=later("hard_vnpu.splitting:HardVnpus"),
    live={"values": {str: str}, "npu_smi": str, "timeout": int},
    restore=later("hard_vnpu.splitting:restore"),
    compare=compared_where_wanted("hard_vnpu", "hard_vnpu.splitting:compare"),
)
