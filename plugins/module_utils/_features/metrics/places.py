# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature metrics keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

SETTINGS = "/etc/npu-affinity/metrics.json"
SECTION = "metrics"
"""The section of previous.json: the paths of all files that were written, so that none is left when another one is wanted."""
METRICS_SERVICE, METRICS_TIMER = "npu-affinity-metrics.service", "npu-affinity-metrics.timer"
