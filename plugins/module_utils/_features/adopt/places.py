# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature adopt keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER

SECTION = "adopt"
SETTINGS = "/etc/npu-affinity/adopt.json"
"""Which running work the watcher adopts; there only where it adopts any."""
DROP_IN = "50-npu-affinity-adopt.conf"
DROP_INS = "%s/*.service.d/%s" % (UNIT_FOLDER, DROP_IN)
