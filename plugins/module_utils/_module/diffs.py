# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules tell of a report: diffs, chips as rows, and sentences on cards that need the same to be said.

This module is private to the collection.
"""

from __future__ import annotations

from .._cpulist import compress
from .._irq.affinity import KINDS, subject


def of_files(changes):
    """Return the diff of ``{path: (before, after)}`` of file states: an entry for every file.

    What not everybody may read on the host is not printed into the controller's log: an entry then says so instead of the text.
    """
    return [
        {
            "before_header": path if before.text is not None else path + " (absent)",
            "after_header": path if after.text is not None else path + " (absent)",
            "before": _shown(before, before.private or after.private),
            "after": _shown(after, before.private or after.private),
        }
        for path, (before, after) in changes.items()
    ]


def _shown(state, private):
    if private and state.text is not None:
        return "(not shown; mode %s)\n" % ("of a link" if state.mode is None else "%04o" % state.mode)
    return (state.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def of_affinities(npus):
    """Return the diff of the NPUs, or PCI functions, of a report: a line for every interrupt, workqueue and thread that moves."""
    moved = [
        ("%s %s: CPUs " % (npu["pci"] if npu["id"] is None else "NPU %s %s" % (npu["id"], npu["pci"]), subject(kind, entry)), entry)
        for npu in npus
        for kind in KINDS
        for entry in npu[kind]
        if entry["before"] != entry["after"]
    ]
    return _diff("affinity", [(title, entry["before"], entry["after"]) for title, entry in moved])


def of_settings(steps):
    """Return the diff of ``[{path, before, after}]``: a line for every kernel setting that changes."""
    return _diff("host settings", [("%s: " % step["path"], step["before"], step["after"]) for step in steps])


def chips_of(report):
    """Return the chips of all cards that answered, as ``[{card, chip, before, after, enabled}]``; ``enabled`` is the wanted state."""
    return [
        {
            "card": card,
            "chip": chip,
            "before": enabled,
            "after": report.after[card].get(chip),
            "enabled": report.wanted.get(card, {}).get(chip),
        }
        for card, chips in sorted(report.before.items())
        for chip, enabled in sorted(chips.items())
    ]


def recover_of(report):
    """Return the driver's recovery switch ``{before, after}``, or None when it was left alone."""
    return None if report.recover is None else {"before": report.recover[0], "after": report.recover[1]}


def of_device_share(chips, recover):
    """Return the diff: a line for every chip that changes, and for the recovery switch."""
    words = {True: "on", False: "off", None: "unknown"}
    moved = [("card %d chip %d: " % (chip["card"], chip["chip"]), chip) for chip in chips if chip["before"] is not chip["after"]]
    if recover and recover["before"] is not recover["after"]:
        moved.append(("recovery by the driver: ", recover))
    return _diff("device share", [(title, words[values["before"]], words[values["after"]]) for title, values in moved])


def _diff(header, lines):
    return {
        "before_header": header,
        "after_header": header,
        "before": "".join("%s%s\n" % (title, before) for title, before, _after in lines),
        "after": "".join("%s%s\n" % (title, after) for title, _before, after in lines),
    }


def card_sentences(failed):
    """Return the failures of cards (None: the recovery switch) with cards joined for which the same is to be said."""
    cards = {}
    for card, text in failed.items():
        cards.setdefault(text, []).append(card)
    titles = [(text, "recovery" if None in found else "card %s" % compress(found)) for text, found in cards.items()]
    return ["%s: %s" % (title, text) for text, title in titles]


def of_threads(processes):
    """Return the diff of the processes of a report of :func:`_processes.placing.place`: a line for every thread that moves."""
    moved = [
        ("%s, thread %d %s: CPUs " % (row["title"], entry["tid"], entry["name"]), entry["before"], entry["after"])
        for row in processes
        for entry in row["threads"]
        if entry["before"] != entry["after"]
    ]
    return _diff("threads", moved)


def of_memory(migration, check):
    """Return the diff of a :class:`_processes.memory.Migration`: a line for every process with MiB on remote nodes, as predicted in check
    mode."""
    lines = []
    for process, _table, amount in migration.todo:
        moved = sum(step["mib"] - step["left_mib"] for step in migration.steps if step["pid"] == process.pid)
        lines.append(("%s: MiB on remote nodes " % process.title, "%.1f" % amount, "0.0" if check else "%.1f" % (amount - moved)))
    return _diff("memory", lines)


def of_unbind(report):
    """Return the diffs of a report of :mod:`_unbind`, without those in which nothing differs."""
    diffs = of_files(report.changes) + [of_settings(report.settings)]
    diffs += [of_affinities(report.affinities.npus)] if report.affinities else []
    diffs += [of_device_share(chips_of(report.share), recover_of(report.share))] if report.share else []
    diffs += [of_threads(report.threads.processes)] if report.threads else []
    return [entry for entry in diffs if entry["before"] != entry["after"]]
