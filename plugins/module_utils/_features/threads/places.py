# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature threads keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

SETTINGS = "/etc/npu-affinity/threads.json"
PROGRESS = "/run/npu-affinity/migration.json"
"""What a migration has done and still has to do, for those who wait for it; gone when it has ended."""
