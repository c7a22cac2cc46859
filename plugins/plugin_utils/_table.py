# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans drawn as text.

This module is private to the collection.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HEADINGS = ("NPU", "name", "PCI", "NUMA", "pool", "IRQ", "main", "ACL", "release", "memory", "slice")

TITLE_WIDTH = 11
REMARK_WIDTH = 72
"""Narrow enough that Ansible's YAML output does not fold the lines once more."""


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, two blanks apart, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def plan_table(plan: Mapping[str, Any], topology: Mapping[str, Any], summary: str = "", remarks: Iterable[str] = ()) -> list[str]:
    """Return the table of a plan: one line for every NPU, then why, how good, what was repaired and what to look at.

    ``summary`` is a further sentence, such as the one of filter ``binding`` about how the workloads are bound; ``remarks`` are those of
    filter ``remarks``.
    """
    known = {(npu["pci"], npu["id"]): npu for npu in topology["npus"]}
    rows: list[tuple[str, ...]] = [HEADINGS]
    for entry in plan["npus"]:
        npu = known.get((entry["pci"], entry["id"]), {})
        rows.append(
            (
                str(entry["id"]),
                str(npu.get("name") or "?"),
                str(entry["pci"] or "?"),
                "?" if npu.get("numa") is None else str(npu["numa"]),
                *(entry[role] or "-" for role in ("pool", "irq", "main", "acl", "release", "mems", "slice")),
            )
        )
    table = columns(rows) if plan["npus"] else ["no NPU"]
    told = [*_remarks(plan, topology), *([("bound", summary)] if summary else []), *(("remark", sentence) for sentence in remarks)]
    return table + [line for title, sentence in told for line in _wrapped(title, sentence)]


def _wrapped(title: str, sentence: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        width=REMARK_WIDTH,
        initial_indent=title.ljust(TITLE_WIDTH),
        subsequent_indent=" " * TITLE_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _remarks(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    quality = plan["quality"]
    yield "strategy", f"{plan['strategy']}, {plan['requested']} was requested. {plan['reason']}"
    housekeeping = f", housekeeping {plan['housekeeping']}" if plan["housekeeping"] else ""
    yield "CPUs", f"{plan['cpus'] or 'none'} divided{housekeeping}, idle {quality['idle'] or 'none'}"
    yield (
        "quality",
        f"pools {'disjoint' if quality['disjoint'] else 'OVERLAP'}, cores {'whole' if quality['whole_cores'] else 'SPLIT between NPUs'}, "
        f"{quality['local']:.0%} of the CPUs on the NPU's own or nearest NUMA node, "
        f"largest minus smallest pool {quality['balance']} CPUs",
    )
    for title, sentences in (
        ("repaired", plan["repaired"]),
        ("warning", plan["warnings"]),
        ("violation", plan.get("violations") or ()),
        ("problem", topology.get("problems") or ()),
    ):
        for sentence in sentences:
            yield title, sentence
