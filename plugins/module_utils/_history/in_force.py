# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host should be by its own history, and since which entry something is as it is.

This module is private to the collection.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .entries import Entry


def state_in_force(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the desired state of a host by its entries, oldest first; None without an entry.

    Usually that is the newest one. Where roles are applied one by one each has its own entry, and what another feature had last is added.
    """
    together: dict[str, Any] | None = None
    for entry in reversed(entries):
        if together is None:
            together = dict(entry.state)
        elif not set(entry.state["features"]) & set(together["features"]):
            together = _both(together, entry.state)
    return together


def _both(newer: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    """Return two states of different features as one; in what both say the newer one counts."""
    both = dict(older, **newer)
    for key, value in older.items():
        if isinstance(value, list):
            both[key] = newer.get(key, []) + [member for member in value if member not in newer.get(key, [])]
        elif key in ("features", "live", "absent"):
            both[key] = dict(value, **newer.get(key, {}))
        else:
            both[key] = newer.get(key) or value
    return both


def since(entries: Sequence[Entry], part: Callable[[dict[str, Any]], Any]) -> Entry | None:
    """Return the entry since which a part of the state is as it is now, without a look at entries that do not have the part; None where
    no entry has it."""
    found = None
    for entry in reversed(entries):
        value = part(entry.state)
        if value is None:
            continue
        if found is not None and value != part(found.state):
            break
        found = entry
    return found
