# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of an inventory a playbook takes.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

GROUP = "npu_hosts"
WITHOUT_MEANING = {"all", "untagged"}
"""Tags with which every task runs that has none."""


def pattern(given: str, groups: Collection[str]) -> str:
    """Return the pattern of hosts: that of the user, else the group of NPU hosts, else all."""
    return given or (GROUP if GROUP in groups else "all")


def refusal(wanted: str, in_inventory: int, matched: Collection[str], limited: Collection[str] | None, sources: Iterable[str]) -> str:
    """Return why there is no host to work on, or an empty string.

    ``matched`` are the hosts of the pattern, ``limited`` those of ``--limit``, or None without it.
    """
    if not in_inventory:
        return f"the inventory {', '.join(sources) or '(none is given)'} has no hosts: name a file or folder that has some, with -i."
    if not matched:
        return f"no host of the inventory matches {wanted}, of {in_inventory}: correct npu_affinity_hosts, or the group in the inventory."
    if limited is not None and not set(matched) & set(limited):
        return f"--limit names {len(set(limited))} hosts, and none of them is in {wanted}: correct --limit or npu_affinity_hosts."
    return ""


def tags_refusal(tags: Iterable[str], skipped: Iterable[str], roles: Collection[str]) -> str:
    """Return why these tags of the command line cannot be followed, or an empty string."""
    named = sorted(set(tags) - WITHOUT_MEANING)
    skips = sorted(set(skipped) & set(roles))
    option = f"--tags {','.join(named)}" if named else f"--skip-tags {','.join(skips)}"
    if not named and not skips:
        return ""
    return (
        f"{option}: the playbooks of npu.affinity have no tags, because a host is bound as a whole. Switch a role off or on with its "
        "variable, such as npu_affinity_irq_enabled: false, and unbind one alone with npu_affinity_features of the playbook unbind."
    )
