# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature nic keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

import re

FILE = "/etc/npu-affinity/nic.json"
RULES = "/etc/udev/rules.d/91-npu-affinity-nic.rules"
NIC_SERVICE, NIC_INSTANCE, NIC_TIMER = "npu-affinity-nic.service", "npu-affinity-nic@.service", "npu-affinity-nic.timer"
NEAR, OFF = "near", "off"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
