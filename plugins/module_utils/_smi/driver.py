# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ascend's driver on a host: where its npu-smi lies, and which version its files name."""

from __future__ import annotations

import re

from .._host.host import Host

NPU_SMI_FOLDERS = ("/usr/local/Ascend/driver/tools", "/usr/local/sbin", "/usr/local/bin")
VERSION_FILE = "/usr/local/Ascend/driver/version.info"
_VERSION = re.compile(r"^Version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def installed_version(host: Host) -> str | None:
    """Return the version that the driver's own file states, or None."""
    stated = _VERSION.search(host.read(VERSION_FILE) or "")
    return stated.group(1) if stated else None
