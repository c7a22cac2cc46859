# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature nic: interrupts of network queues on CPUs that are near the function and in no pool."""

from __future__ import annotations

import re

from ..._host.installed import UNIT_FOLDER
from ..feature import compared_where_wanted, later, value_feature
from ..irq.feature import IRQBALANCE

FILE = "/etc/npu-affinity/nic.json"
RULES = "/etc/udev/rules.d/91-npu-affinity-nic.rules"
NIC_SERVICE, NIC_INSTANCE, NIC_TIMER = "npu-affinity-nic.service", "npu-affinity-nic@.service", "npu-affinity-nic.timer"
NEAR, OFF = "near", "off"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")

FEATURE = value_feature(
    "nic",
    effect="moves network interrupts off the pools",
    kind=later("nic.queues:Queues"),
    live={"mode": str, "functions": {str: str}},
    owned=(FILE, RULES) + tuple("%s/%s" % (UNIT_FOLDER, name) for name in (NIC_SERVICE, NIC_INSTANCE, NIC_TIMER)),
    programs=("npu-affinity-nic*", "system-npu*affinity*nic*.slice"),
    restarted=((IRQBALANCE, (FILE,)),),
    compare=compared_where_wanted("nic", "nic.queues:compare"),
    compared=0,
)
