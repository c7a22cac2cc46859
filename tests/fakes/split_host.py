# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host whose cards containers share."""

from __future__ import annotations

from tests.fakes.two_cards import two_cards

MACHINE = two_cards(1, 0)
VENDOR = ("/simulator", "/var/log", "/run", "/etc/device_share.cfg", "/proc", "/sys")


def ours(snapshot):
    return {path: state if isinstance(state, str) else state[2] for path, state in snapshot.items() if not path.startswith(VENDOR)}
