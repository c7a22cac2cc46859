# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the soft split on the controller."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path


def refusal(missing: Sequence[Mapping[str, str]], sources: Mapping[str, str], host: str) -> str:
    """Return why the files that are missing on a host cannot be copied, or an empty string; ``sources`` are paths by SHA-256."""
    for file in missing:
        if file["sha256"] not in sources:
            return (
                f"{file['name']} with SHA-256 {file['sha256']} is not on host {host}, and npu_affinity_vnpu_files names no such file: "
                "add it there with its src."
            )
    for file in missing:
        source = sources[file["sha256"]]
        found = _checksum(source)
        if found != file["sha256"]:
            return f"{source} has SHA-256 {found or 'none, there is no such file'}, and {file['name']} should have {file['sha256']}."
    return ""


def _checksum(path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
