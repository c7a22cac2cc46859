# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAMi's device plugin does on a node.

Project-HAMi/ascend-device-plugin@ed35e1c4 ``internal/server/device_share.go``.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def plugin_share_calls(
    chips: Iterable[Mapping[str, int]], soft_mode: bool, failing_call: int | None = None
) -> tuple[list[list[str]], bool]:
    """Return the npu-smi calls by which the plugin switches device share on when it starts, and whether it gave up.

    ``chips`` are ``{card, chip}``. It stops at the first failure (``failing_call``, counted from 1), never switches off, and does nothing
    on a node without soft mode. A call for a chip that is on already succeeds even while a container holds it.
    """
    calls: list[list[str]] = []
    for chip in chips if soft_mode else ():
        call = ["set", "-t", "device-share", "-i", str(chip["card"]), "-c", str(chip["chip"]), "-d", "1"]
        if call not in calls:
            calls.append(call)
        if len(calls) == failing_call:
            return calls, True
    return calls, False
