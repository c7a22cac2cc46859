# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature irq keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER

UNCHANGEABLE = "/run/npu-affinity/unchangeable.json"
"""What the last bind could not place, ``{pci: {key: Step.memory()}}``, so a check, which never writes, does not call it drift."""
COUNTERS = "/run/npu-affinity/counters.json"
REBINDS = "/run/npu-affinity/rebinds.json"
"""``{pci: {key: {boot, times: [seconds since that boot]}}}`` of what was restored, ``{pci: {key: {since, count, who}}}`` of what is
left alone."""
RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
IRQ_SERVICE, IRQ_INSTANCE, IRQ_TIMER = "npu-affinity-irq.service", "npu-affinity-irq@.service", "npu-affinity-irq.timer"
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
