# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place the queues of network functions on the CPUs that a desired state has for them, and report the result.

Queue N of a function goes to the Nth of its CPUs, and those after the last begin again. Functions with the same CPUs begin at different
ones. The number of queues, RPS and XPS are left alone.
"""

from __future__ import annotations

import re
import time
from typing import Any, Mapping, NamedTuple, Sequence

from ..._base.cpulist import compress, expand
from ..._base.table import count
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Interrupt, Vector, interrupt_names
from ..._kernel.nics import RPS, XPS, managed_disks, queue_name, queues, steered_cpus
from ..._kernel.neighbours import name_of
from ..._kernel.pci import DEVICE_FOLDER
from ..._state import previous
from ..irq.affinity import Report, Row, Step, settle
from ..irq.placing import place, remembered, rows_of_record
from ..irq.rebinds import Rebinds
from .places import ADDRESS, SECTION

TITLE = "queue interrupts"
"""How diffs and sentences call all queues of a function together."""
_NUMBER = re.compile(r"\d+\Z")
_OVERLOAD = 4
"""Queues for each CPU from which on these CPUs are probably too few."""


class Placed(NamedTuple):
    """The rows of functions, and sentences: what the kernel does not let move, what to know, and what failed."""

    rows: list[Row]
    unchangeable: list[str]
    warnings: list[str]
    failed: list[str]

    @property
    def changed(self) -> bool:
        return any(step.before != step.after for row in self.rows for step in row.all_steps())

    def entries(self) -> list[dict[str, Any]]:
        return [row.entries() for row in self.rows]


def wanted_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the CPUs of each function that a desired state, or the feature's file, wants. Raises ``ValueError`` for another shape."""
    found = document.get("functions") if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise ValueError("the requested network functions have an unexpected form")
    for pci, cpus in found.items():
        if not (ADDRESS.match(pci) and isinstance(cpus, str) and expand(cpus, "CPUs of %s" % pci)):
            raise ValueError("%r with CPUs %r is not a network function" % (pci, cpus))
    return found


def name(host: Host, pci: str) -> str:
    found = name_of(host, "%s/%s" % (DEVICE_FOLDER, pci))
    return "%s (%s)" % (found, pci) if found else pci


def bind(
    host: Host,
    wanted: Mapping[str, str],
    pci: str | None = None,
    check: bool = False,
    tolerant: bool = False,
    rebinds: Rebinds | None = None,
) -> Placed:
    """Place the queues of all functions, or of ``pci``; the arguments are those of :func:`irq.binding.bind`."""
    online, names, known = read_list(host, CPU_FOLDER + "/online"), interrupt_names(host), remembered(host)
    rows, failed = [], []
    for function, cpus in sorted(wanted.items()):
        if pci is None or function == pci.lower():
            row = Row(function)
            rows.append(row)
            able = [cpu for cpu in sorted(expand(cpus)) if not online or cpu in online]
            found = queues(host, function, names)
            if not able:
                if found:
                    row.text = "no CPU of %s is online; bring one online or bind again" % cpus
                    failed.append("%s: %s" % (name(host, function), row.text))
                continue
            same = sorted(other for other, theirs in wanted.items() if theirs == cpus)
            first = same.index(function) * len(able) // len(same)
            able = able[first:] + able[:first]
            for number, vector in found:
                start = number % len(able)
                order = [str(cpu) for cpu in able[start:] + able[:start]]
                key = queue_key(vector)
                row.steps["interrupts"].append(Step(Interrupt(vector.irq, TITLE), order, key, known.get(function, {}).get(key)))
    place(host, rows, lambda: record(host, rows), check, tolerant, rebinds)
    return _told(host, rows, failed)


def queue_key(vector: Vector) -> str:
    """Return what identifies the interrupt of a queue within its function, whatever its number and its interface's name are."""
    return "%d %s" % (vector.ordinal, queue_name(vector.name))


def recorded(sections: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return ``{pci: {key: cpulist}}`` of previous.json."""
    return {pci: dict(places) for pci, places in sections.get(SECTION, {"functions": {}})["functions"].items()}


def record(host: Host, rows: Sequence[Row]) -> None:
    """Record where queues were before the first bind, where that is not known yet."""
    known = recorded(previous.recorded(host))
    for row in rows:
        for step in row.all_steps():
            if step.before is not None:
                known.setdefault(row.pci, {}).setdefault(step.key, step.before)
    previous.replace(host, SECTION, {"functions": known} if known else None)


def restore(host: Host, functions: Mapping[str, Mapping[str, str]], check: bool) -> Report:
    """Put the queues of functions back where the record has them. Those that are gone are warnings."""
    rows = rows_of_record(host, functions, TITLE, queue_key)
    settle(host, [step for row in rows for step in row.all_steps()], check)
    text = "%s: %d of %d recorded queue interrupts cannot be restored, because its driver no longer has them (queues %s)"
    gone = [(row, compress(int(number) for key in row.missing for number in _NUMBER.findall(key))) for row in rows if row.missing]
    return Report(rows, [text % (name(host, row.pci), len(row.missing), len(functions[row.pci]), numbers) for row, numbers in gone])


def _told(host: Host, rows: list[Row], failed: list[str]) -> Placed:
    placed = Placed(rows, [], [], failed)
    for row in rows:
        groups: dict[tuple[str, str], list[Step]] = {}
        for step in row.all_steps():
            groups.setdefault((step.state, step.target.name), []).append(step)
        for (state, what), steps in groups.items():
            numbers = compress(step.target.irq for step in steps if step.target.irq is not None)
            title = "%s: %s" % (name(host, row.pci), "IRQ %s (%s)" % (numbers, what) if numbers else what)
            if state == "managed":
                placed.unchangeable.append("%s: the kernel places them itself, and they stay" % title)
            elif state == "full":
                placed.unchangeable.append("%s: %s" % (title, steps[0].text))
            elif state in ("stuck", "fought over"):
                placed.warnings.append("%s: %s" % (title, steps[0].text))
            elif state in ("busy", "failed"):
                placed.failed.append("%s: %s" % (title, steps[0].text))
    return placed


def remarks(host: Host, wanted: Mapping[str, str]) -> list[str]:
    """Return what to know about the queues of functions and the interrupts of NVMe disks. Reads only."""
    names, sentences = interrupt_names(host), []
    found = {pci: len({number for number, _vector in queues(host, pci, names)}) for pci in wanted}
    for pci, cpus in sorted(wanted.items()):
        title = name(host, pci)
        if not found[pci]:
            sentences.append("%s: its driver has requested no queue interrupts, as while the interface is down" % title)
        together = sum(found[other] for other, theirs in wanted.items() if theirs == cpus)
        sentences += _shared(title, found[pci], together, cpus)
        for kind in (RPS, XPS):
            others = steered_cpus(host, pci, kind)
            if others - set(expand(cpus)):
                sentences.append("%s: %s also uses CPUs %s, and is not changed" % (title, kind, compress(others)))
    disks = managed_disks(host)
    return sentences + (["%s: the kernel places their interrupts itself" % ", ".join(disks)] if disks else [])


def _shared(title: str, number: int, together: int, cpus: str) -> list[str]:
    """Return a sentence where a function has more queues than CPUs; ``together``: those of all functions on these CPUs."""
    most = len(expand(cpus))
    if number and together > _OVERLOAD * most:
        return [
            "%s: %s on %s (%s), which %d queues can overload; keep more CPUs of the node with npu_affinity_housekeeping, or reduce the "
            "queues with ethtool -L" % (title, count(number, "queue"), count(most, "CPU"), cpus, together)
        ]
    if number <= most:
        return []
    return ["%s: %d queues share %s (%s); %s would do" % (title, number, count(most, "CPU"), cpus, count(most, "queue"))]


def await_queues(host: Host, pci: str, seconds: float) -> None:
    """Wait until a function has interrupts of queues and no more of them than at the look before, at most so many seconds."""
    deadline, before = time.monotonic() + seconds, 0
    while host.exists("%s/%s" % (DEVICE_FOLDER, pci)):
        found = len(queues(host, pci))
        left = deadline - time.monotonic()
        if found and found == before or left <= 0:
            return
        before = found
        time.sleep(min(1, left))
