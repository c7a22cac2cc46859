# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ascend's driver on a host: where its npu-smi lies, which version its files name, and how versions compare."""

from __future__ import annotations

import re

from .._host.host import Host

NPU_SMI_FOLDERS = ("/usr/local/Ascend/driver/tools", "/usr/local/sbin", "/usr/local/bin")
VERSION_FILE = "/usr/local/Ascend/driver/version.info"
OLDEST_DRIVER = "25.5"
"""The first driver whose device share serves soft split."""
_VERSION = re.compile(r"^Version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def installed_version(host: Host) -> str | None:
    """Return the version that the driver's own file states, or None."""
    stated = _VERSION.search(host.read(VERSION_FILE) or "")
    return stated.group(1) if stated else None


def is_older(version: str, other: str) -> bool:
    """Whether a driver version is older than another one; release candidates come before the release (``26.0.rc2`` < ``26.0``)."""
    return _order(version) < _order(other)


def _order(version: str) -> tuple[list[int], list[float]]:
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"\.rc", version.lower())[0])]
    candidate: list[float] = [int(number) for number in re.findall(r"\d+", "".join(re.split(r"\.rc", version.lower())[1:]))]
    return (numbers + [0] * 4)[:4], candidate or [float("inf")]
