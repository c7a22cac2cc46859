# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature hugepages keeps what it has on a host."""

GRANTED = "/run/npu-affinity/hugepages.json"
"""What the kernel granted since the boot: ``{path: [wanted, granted]}``."""
