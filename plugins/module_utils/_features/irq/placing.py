# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of interrupts brought to their CPUs, and what a later check has to know of them: for all features that place interrupts."""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Mapping, Sequence

from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Interrupt, Vector, interrupt_counts, interrupt_names, requested
from .affinity import Row, Step, require_memory, settle
from .places import UNCHANGEABLE
from .rebinds import Rebinds


def vector_key(vector: Vector) -> str:
    """Return what identifies a vector within its function, whatever its number is."""
    return "%d %s" % (vector.ordinal, vector.name)


def place(
    host: Host, rows: Sequence[Row], record: Callable[[], object], check: bool, tolerant: bool = False, rebinds: Rebinds | None = None
) -> None:
    """Bring everything in the rows to its CPUs; the arguments are those of :func:`irq.binding.bind`. ``record`` comes before a write."""
    steps = [step for row in rows for step in row.all_steps()]
    if rebinds is not None:
        for row in rows:
            for step in row.all_steps():
                step.why_left = functools.partial(rebinds.why_left, row.pci, step.key)
    settle(host, steps, check, record)
    pending = {step.target.irq: step for step in steps if step.state == "pending" and step.target.irq is not None}
    counts = interrupt_counts(host, pending) if pending else {}
    for irq, step in pending.items():
        step.compare_count(host, counts.get(irq))
    if not check:
        _remember(host, rows, tolerant)
        if rebinds is not None:
            rebinds.note(rows)


def remembered(host: Host) -> dict[str, Any]:
    """Return the contents of :data:`UNCHANGEABLE`, or nothing if the file is not managed, because the next bind writes it again."""
    try:
        found: dict[str, Any] = json_of(host.read(UNCHANGEABLE) or "{}")
        require_shape(found, {str: {str: dict}}, "it")
        for entries in found.values():
            for key, known in entries.items():
                require_memory(known, key)
    except ValueError:
        return {}
    return found


def _remember(host: Host, rows: Sequence[Row], tolerant: bool) -> None:
    before, looked_at = remembered(host), {row.pci for row in rows}
    after = {pci: known for pci, known in before.items() if pci not in looked_at}
    for row in rows:
        for step in row.all_steps():
            known = step.memory(tolerant)
            if known:
                after.setdefault(row.pci, {})[step.key] = known
    if after != before:
        from ..._state.files import atomic_write  # seldom needed, and what it imports costs a third of a start

        atomic_write(host, UNCHANGEABLE, json.dumps(after, indent=1, sort_keys=True) + "\n")


def rows_of_record(
    host: Host, functions: Mapping[str, Mapping[str, str]], title: str = "", key: Callable[[Vector], str] = vector_key
) -> list[Row]:
    """Return a row for each function of a record with its interrupts, which go back; ``title`` names them all instead of their own names.

    Vectors are found by their ``key``. What is no longer there needs nothing, and is ``missing`` in its row.
    """
    online, names = read_list(host, CPU_FOLDER + "/online"), interrupt_names(host)
    rows = []
    for pci, recorded in sorted(functions.items()):
        row = Row(pci)
        rows.append(row)
        found = {key(vector): vector for vector in requested(host, pci, names)}
        for name, vector in found.items():
            cpus = recorded.get(name)
            if cpus:
                target = Interrupt(vector.irq, title or vector.name)
                row.steps["interrupts"].append(Step(target, [target.restored(host, cpus, online)], name))
        row.missing = [name for name in recorded if name not in found]
    return rows
