# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What irqbalance is called, and the files of a bind for it."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER

IRQBALANCE = "irqbalance.service"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
CONFINED_POLICY = "/usr/libexec/irqbalance/npu-affinity-policy"
"""Where our policy script lies, and where it does for an irqbalance that SELinux confines."""
IRQBALANCE_FILES = (
    "/etc/npu-affinity/irqbalance.env",
    UNIT_FOLDER + "/irqbalance.service.d/50-npu-affinity-irq.conf",
    POLICY,
    CONFINED_POLICY,
)
