# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How sentences call what uses accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Iterable, Sequence

if TYPE_CHECKING:
    from .._base.documents import NpuUser

_SHOWN = 3


def title_of(user: NpuUser) -> str:
    """Return how a user is called: ``container vllm``, ``vllm.service``, ``python3``."""
    return "container %s" % user["name"] if user["container"] else user["name"]


def processes_of(user: NpuUser) -> str:
    """Return a user's processes as a text: ``process 4711 python3``."""
    return "process " + listed(["%d %s" % (one["pid"], one["command"]) for one in user["processes"]])


def holders(users: Iterable[NpuUser], names: Collection[str], pids: Collection[int] = ()) -> str:
    """List the users that have devices (names below ``/dev``) open, '' if none is found. ``pids`` are known to use them."""
    held = []
    for user in users:
        own = [one for one in user["processes"] if one["pid"] in pids or not set(names).isdisjoint(one["devices"])]
        if own:
            found = processes_of({**user, "processes": own})
            held.append(found if user["kind"] in ("session", "other") else "%s (%s)" % (title_of(user), found))
    return listed(held)


def listed(members: Sequence[str]) -> str:
    """Return the first members of a list, and how many more there are."""
    rest = " and %d more" % (len(members) - _SHOWN) if len(members) > _SHOWN else ""
    return ", ".join(members[:_SHOWN]) + rest
