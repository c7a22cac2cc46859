# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The likely cause of a difference, from what can be seen. Nothing here looks at a host.

The causes rest on what Linux 6.1, systemd 252 and irqbalance 1.9 were seen to do: a driver that is loaded again has its interrupts,
workqueues and threads on all CPUs of before; irqbalance moves interrupts and nothing else; an interrupt whose only CPU goes offline
gets all others, and keeps them when the CPU is back; ``systemctl set-property`` leaves a drop-in of its own.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .._base.cpulist import expand
from .findings import CHANGED_CPUSET, DRIVER_RELOAD, EDIT, FOUGHT_OVER, IN_PROCESS, IRQBALANCE, OFFLINE_CPU, Cause


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


def of_move(
    kind: str,
    entry: dict[str, Any],
    everything: bool,
    online: set[int],
    offline: str,
    irqbalance: str,
    process: str = "",
    suspect: Callable[[], str] = lambda: "",
) -> Cause:
    """Return the likely cause why an interrupt, workqueue or thread is not where it should be.

    ``entry`` is that of :func:`irq.binding.bind`; ``everything``: whether all that the driver has on this NPU moved; ``online``: the set
    of CPUs; ``offline``: the plan's CPU for it where that is offline and it should be on another one; ``irqbalance``: a sentence when it
    runs and was not told to leave this NPU alone, or may not know it; ``process``: one when a process of the NPU has been told to move it
    to where it is; ``suspect``: says what else that is known to move interrupts was found, or ''.
    """
    if entry["state"] == "fought over":
        return Cause(FOUGHT_OVER, "it %s; bind when that is settled" % entry["text"])
    if offline:
        return Cause(OFFLINE_CPU, "IRQ CPU %s; it should be on another one meanwhile" % offline)
    found = set(expand(entry["before"] or ""))
    if kind == "interrupts" and 2 * len(found) > len(online) > 1 and not found & set(expand(entry["wanted"])):
        return Cause(OFFLINE_CPU, "CPU %s was offline for a while; what the kernel moved off it does not come back" % entry["wanted"])
    if process:
        return Cause(IN_PROCESS, process)
    if everything:
        return Cause(DRIVER_RELOAD, "the driver was loaded again, or the host booted, and nothing has bound it since")
    if kind == "interrupts" and irqbalance:
        return Cause(IRQBALANCE, irqbalance)
    who = suspect() if kind == "interrupts" else ""
    return Cause(EDIT, "moved by hand or by another program%s" % (", " + who if who else ""))
