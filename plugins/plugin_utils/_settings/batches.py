# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches in which a playbook walks through a fleet."""

from __future__ import annotations

import re
from typing import Any

SETTING = "npu_affinity_batches"
COMPARED = [100]
"""How many hosts are compared at a time. Progress is reported after each batch."""
_BATCH = re.compile(r"[1-9][0-9]*|(?:[1-9][0-9]?|100)%")


def checked(value: Any, setting: str) -> list[Any]:
    """Return the batches as ``serial`` of a play has them.

    Raises ``ValueError`` for what would run on no host, or not on those that were meant.
    """
    found = list(value) if isinstance(value, list | tuple) else [value]
    for batch in found:
        if isinstance(batch, bool) or not _BATCH.fullmatch(str(batch).strip()):
            raise ValueError(
                f"{setting}: expected numbers of hosts from 1 on, or percentages from 1% to 100%, such as [1, 5%, 100%]; got {batch!r}"
            )
    if not found:
        raise ValueError(f"{setting}: the list is empty; give at least one batch, such as [100%]")
    return [str(batch).strip() if "%" in str(batch) else int(batch) for batch in found]
