# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift: what a host should have, what it has, and the likely cause. Nothing here looks at a host.

The causes rest on what Linux 6.1, systemd 252 and irqbalance 1.9 were seen to do: a driver that is loaded again has its interrupts,
workqueues and threads on all CPUs of before; irqbalance moves interrupts and nothing else; an interrupt whose only CPU goes offline
gets all others, and keeps them when the CPU is back; ``systemctl set-property`` leaves a drop-in of its own.

This module is private to the collection.
"""

from __future__ import annotations

from .._cpulist import expand

IRQBALANCE = "irqbalance"
DRIVER_RELOAD = "driver reload"
CHANGED_CPUSET = "changed cpuset"
OFFLINE_CPU = "offline CPU"
EDIT = "manual change"
LOST_CARD = "lost card"
NEW_CARD = "new card"
OLD_PROCESS = "not restarted"
CHANGED_SETTINGS = "changed settings"
NEVER_BOUND = "never bound"
UNREADABLE = "npu-smi"
KERNEL = "kernel"
FAILED_UNIT = "failed unit"
"""Every cause begins with one of these words, followed by a colon and a remark on this case."""

_SHOWN = 3


class Findings:
    """What was compared so far.

    ``checked`` is ``{kind: [object]}``, ``drift`` a list of ``{kind, object, expected, found, cause, npu, unit}`` in the order of
    looking, where ``npu`` is a logic id or None and ``unit`` a systemd unit or None; ``remarks`` are sentences on what is no drift.
    """

    def __init__(self):
        self.checked = {}
        self.drift = []
        self.remarks = []

    def same(self, kind, name):
        """Note an object that is as expected."""
        self.checked.setdefault(kind, []).append(name)

    def differs(self, kind, name, expected, found, cause, npu=None, unit=None):
        """Note an object that is not as expected; ``expected`` and ``found`` are short texts."""
        self.same(kind, name)
        entry = {"kind": kind, "object": name, "expected": expected, "found": found, "cause": cause, "npu": npu, "unit": unit}
        self.drift.append(entry)


def because(cause, remark):
    return "%s: %s" % (cause, remark)


def differing_lines(expected, found):
    """Return the lines that only the one, and only the other of two texts has, each as a short text."""
    lines = [text.splitlines() for text in (expected, found)]
    missing, added = ([line for line in lines[mine] if line not in lines[1 - mine]] for mine in (0, 1))
    if not missing and not added:
        return "its lines", "its lines in another order or number"
    return _shortened(missing) or "no further line", _shortened(added) or "no such line"


def _shortened(lines):
    rest = len(lines) - _SHOWN
    return " / ".join(lines[:_SHOWN]) + (" and %d more lines" % rest if rest > 0 else "")


def cause_of_file(before, after, ours):
    """Return the likely cause why a file's text is ``before`` and not ``after`` (None: no file); ``ours``: whether its head says so."""
    if before is None:
        return because(EDIT, "removed, or the settings changed since the last bind")
    if after is None:
        return because(CHANGED_SETTINGS, "left from an earlier bind; the next one removes it")
    if not ours:
        return because(EDIT, "another file took its place")
    return because(EDIT, "changed by hand, or the settings changed since the last bind")


def cause_of_cpuset(unit, wanted, found, parent=None, overrides=(), edited=False, unread=False):
    """Return the likely cause why the kernel grants a unit ``found`` (a set, None without a cpuset) and not ``wanted``.

    ``wanted`` has only what is online; ``parent`` is ``(unit, set)`` of the slice above; ``overrides`` are drop-ins of set-property;
    ``edited``: whether the unit file is not as expected; ``unread``: whether systemd has not read it since it changed.
    """
    if overrides:
        by_hand = all("/system.control/" in path or "/transient/" in path for path in overrides)
        advice = "'systemctl revert %s' removes that" % unit if by_hand else "take it out there"
        return because(EDIT, "overridden by %s; %s" % (", ".join(overrides), advice))
    if not wanted:
        return because(OFFLINE_CPU, "none of them is online, and the kernel then grants those of the slice above")
    if edited:
        return because(EDIT, "its unit file was changed")
    if unread:
        return because(CHANGED_CPUSET, "systemd has not read the unit file since it changed; 'systemctl daemon-reload' does that")
    if found is None:
        return because(CHANGED_CPUSET, "the cpuset controller is off for it")
    if parent and parent[1] is not None and found == wanted & parent[1]:
        return because(CHANGED_CPUSET, "%s above it does not have the others" % parent[0])
    return because(CHANGED_CPUSET, "something other than systemd wrote it, or systemd left an older set behind")


def cause_of_move(kind, entry, everything, online, offline, irqbalance):
    """Return the likely cause why an interrupt, workqueue or thread is not where it should be.

    ``entry`` is that of :func:`_irq.binding.bind`; ``everything``: whether all that the driver has on this NPU moved; ``online``: the set
    of CPUs; ``offline``: the plan's CPU for it where that is offline and it should be on another one; ``irqbalance``: a sentence when it
    runs and was not told to leave this NPU alone.
    """
    if offline:
        return because(OFFLINE_CPU, "IRQ CPU %s; it should be on another one meanwhile" % offline)
    found = set(expand(entry["before"] or ""))
    if kind == "interrupts" and 2 * len(found) > len(online) > 1 and not found & set(expand(entry["wanted"])):
        return because(OFFLINE_CPU, "CPU %s was offline for a while; what the kernel moved off it does not come back" % entry["wanted"])
    if everything:
        return because(DRIVER_RELOAD, "the driver was loaded again, or the host booted, and nothing has bound it since")
    if kind == "interrupts" and irqbalance:
        return because(IRQBALANCE, irqbalance)
    return because(EDIT, "moved by hand or by another program")
