# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a folder is the root of a machine, or has an archive of one that was opened there."""

from __future__ import annotations

import os

from .host import Host

MANIFEST = "npu-affinity-archive.json"
"""The file in the top folder of an archive that says what it is, and what else was found than files."""


def host_at(root: str, timeout: float = 30) -> Host:
    """Return the machine below a root: a record where an archive was opened there."""
    if root == "/" or not os.path.isfile(os.path.join(root, MANIFEST)):
        return Host(root, timeout)
    from .recorded import Recorded  # it is of no use for a machine

    return Recorded(root, timeout)
