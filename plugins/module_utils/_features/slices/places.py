# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature slices keeps what the watcher needs, and which units housekeeping confines."""

from __future__ import annotations

HOUSEKEEPING = "/etc/npu-affinity/housekeeping.json"
"""What the system gets while no workload runs; there only where housekeeping follows the workloads."""
HOUSEKEEPING_UNITS = ("system.slice", "user.slice", "init.scope")
