# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature tuning keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

SECTION = "tuning"
"""The section of previous.json: ``{path: value}`` as they were before the first change."""
FILE = "/etc/npu-affinity/tuning.json"
TUNING_SERVICE = "npu-affinity-tuning.service"
