# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the units: place the queues of network functions as they were applied."""

from __future__ import annotations

import argparse
from typing import Sequence

from ..._base.outside import json_of, say
from ..._base.table import count
from ..._host.host import Host
from ..._state.diffs import diffs
from ..._state.lock import changing
from ..._state.log import Change, log_change
from ..irq import counters
from ..irq.rebinds import Rebinds, forget
from .places import FILE
from .queues import await_queues, bind, wanted_of

PROGRAM = "npu_affinity nic"


def main(argv: Sequence[str] | None = None) -> int:
    """Place by the installed file, and print what moved or could not be placed. Returns 0, or 1 where something failed."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Place the queue interrupts of network functions, as they were applied.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    parser.add_argument("--pci", type=str.lower, help="only this PCI function, e.g. 0000:7d:00.0")
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait for interrupts that a driver requests late; with --pci")
    parser.add_argument("--rebind-limit", type=int, default=0, help="how often to place an interrupt again within an hour")
    options = parser.parse_args(argv)
    host = Host(options.root)
    return _place(host, options.pci, options.wait, options.rebind_limit)


def _place(host: Host, pci: str | None, wait: float = 0, limit: int = 0) -> int:
    try:
        if pci in _wanted(host):
            await_queues(host, pci, wait)
        with changing(host, PROGRAM):
            wanted = _wanted(host)
            rebinds = Rebinds(host, limit) if limit and not pci else None
            for function in [] if rebinds else [function for function in wanted if pci in (None, function)]:
                forget(host, function)
            placed = bind(host, wanted, pci, rebinds=rebinds)
            moved = sum(step.before != step.after for row in placed.rows for step in row.all_steps())
            if moved:
                counters.add(host, counters.DRIVER if pci else counters.CHECK, moved)
    except (OSError, ValueError) as error:
        say("Nothing is placed: %s" % error)
        return 1
    lines = diffs.affinities(placed.entries())
    if lines:
        log_change(host, Change("rebind", PROGRAM, count(moved, "change") + " of network interrupts", lines))
    if rebinds and rebinds.stopped:
        text = "%d network interrupts are no longer restored" % len(rebinds.stopped)
        log_change(host, Change("stop", PROGRAM, text, placed.warnings, rebinds.who))
    for sentence in lines + placed.unchangeable + placed.warnings + placed.failed:
        say(sentence)
    return 1 if placed.failed else 0


def _wanted(host: Host) -> dict[str, str]:
    text = host.text(FILE)
    return {} if text is None else wanted_of(json_of(text))
