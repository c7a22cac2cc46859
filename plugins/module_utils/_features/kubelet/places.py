# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where feature kubelet keeps what it has on a host, and the names of its sections."""

from __future__ import annotations

SECTION = "kubelet"
"""The section of previous.json: ``{path, folders}`` of our drop-in; ``renamed`` has further paths while one takes the place of another."""
