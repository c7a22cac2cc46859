# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The likely cause of a difference, from what can be seen. Nothing here looks at a host.

They rest on what systemd 252 was seen to do: ``systemctl set-property`` leaves a drop-in of its own.
"""

from __future__ import annotations

from typing import Sequence

from .._base.findings import CHANGED_CPUSET, EDIT, OFFLINE_CPU, Cause


def of_file(before: str | None, after: str | None, ours: bool) -> Cause:
    """Return the likely cause why a file has the text ``before`` and not ``after`` (None: no file); ``ours``: whether it is managed."""
    if before is None:
        return Cause(EDIT, "removed")
    if after is None:
        return Cause(EDIT, "added since the last bind; the next one removes it")
    return Cause(EDIT, "changed by hand" if ours else "another file took its place")


def of_cpuset(
    unit: str,
    wanted: set[int],
    found: set[int] | None,
    parent: tuple[str, set[int] | None] | None = None,
    overrides: Sequence[str] = (),
    edited: bool = False,
    unread: bool = False,
) -> Cause:
    """Return the likely cause why the kernel grants a unit ``found`` (a set, None without a cpuset) and not ``wanted``.

    ``wanted`` has only what is online; ``parent`` is ``(unit, set)`` of the slice above; ``overrides`` are drop-ins of set-property;
    ``edited``: whether the unit file is not as expected; ``unread``: whether systemd has not read it since it changed.
    """
    if overrides:
        by_hand = all("/system.control/" in path or "/transient/" in path for path in overrides)
        advice = "'systemctl revert %s' removes that" % unit if by_hand else "remove it there"
        return Cause(EDIT, "overridden by %s; %s" % (", ".join(overrides), advice))
    if not wanted:
        return Cause(OFFLINE_CPU, "none of them is online, and the kernel then grants those of the slice above")
    if edited:
        return Cause(EDIT, "its unit file was changed")
    if unread:
        return Cause(CHANGED_CPUSET, "systemd has not read the unit file since it changed; bind again")
    if found is None:
        return Cause(CHANGED_CPUSET, "the cpuset controller is off for it")
    if parent and parent[1] is not None and found == wanted & parent[1]:
        return Cause(CHANGED_CPUSET, "%s above it does not have the others" % parent[0])
    return Cause(CHANGED_CPUSET, "something other than systemd wrote it, or systemd left an older set behind")
