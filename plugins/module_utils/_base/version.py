# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the collection, as galaxy.yml has it, which no host has, and that of its files on hosts."""

from __future__ import annotations

VERSION = "1.0.0"
SCHEMA = 1
"""Of the files that a bind keeps on a host. Those of another schema are refused."""
