# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature hugepages keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

SECTION = "hugepages"
"""The section of previous.json: ``{size in KiB: {node: pages}}`` as they were before the first change."""
FILE = "/etc/npu-affinity/hugepages.json"
GRANTED = "/run/npu-affinity/hugepages.json"
"""What the kernel granted since the boot: ``{size in KiB: {node: [wanted, granted]}}``."""
HUGEPAGES_SERVICE = "npu-affinity-hugepages.service"
