# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release of Kubernetes the installed kubelet is: what it will be after its next start."""

from __future__ import annotations

import re

from ..._host.host import CommandError, Host

FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/bin", "/usr/sbin")
_PRINTED = re.compile(r"Kubernetes v(\d+\.\d+\S*)")
_SECONDS = 5


def version(host: Host) -> str | None:
    """Return the release, such as ``1.36.2``, or None where the program is not found or does not say it."""
    program = host.find_program("kubelet", FOLDERS)
    if program is None:
        return None
    try:
        match = _PRINTED.search(host.run([program, "--version"], timeout=_SECONDS).output)
    except CommandError:
        return None
    return match.group(1) if match else None


def release(text: str) -> tuple[int, int]:
    """Return the first two numbers of a release: ``1.36.2`` -> ``(1, 36)``."""
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)
