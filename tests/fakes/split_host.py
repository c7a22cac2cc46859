# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host whose cards containers share."""

from __future__ import annotations

import hashlib

from tests.fakes.two_cards import two_cards

MACHINE = two_cards(1, 0)
VENDOR = ("/simulator", "/var/log", "/run", "/etc/device_share.cfg", "/proc", "/sys")


def ours(snapshot):
    return {path: state if isinstance(state, str) else state[2] for path, state in snapshot.items() if not path.startswith(VENDOR)}


def soft_split(*paths):
    """The variables of soft split with these files of the controller."""
    files = [{"name": path.name, "src": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in paths]
    return {"npu_affinity_vnpu_enabled": True, "npu_affinity_vnpu_files": files}
