# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans drawn as text.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADINGS = ("NPU", "name", "PCI", "NUMA", "pool", "IRQ", "main", "ACL", "release", "memory", "slice")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, two blanks apart, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def plan_table(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> list[str]:
    """Return the table of a plan: one line for every NPU, then why, how good, what was repaired and what to look at."""
    known = {(npu["pci"], npu["id"]): npu for npu in topology["npus"]}
    rows = [HEADINGS]
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
    return (columns(rows) if plan["npus"] else ["no NPU"]) + list(_remarks(plan, topology))


def _remarks(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> Iterator[str]:
    quality = plan["quality"]
    yield f"strategy: {plan['strategy']} (requested: {plan['requested']}). {plan['reason']}"
    housekeeping = f"; housekeeping {plan['housekeeping']}" if plan["housekeeping"] else ""
    yield (
        f"CPUs divided: {plan['cpus'] or 'none'}{housekeeping}; idle {quality['idle'] or 'none'}; "
        f"on the NPU's own NUMA node {quality['local']:.0%}; largest minus smallest pool {quality['balance']} CPUs; "
        f"pools {'disjoint' if quality['disjoint'] else 'OVERLAP'}; cores {'whole' if quality['whole_cores'] else 'SPLIT between NPUs'}"
    )
    for title, sentences in (
        ("repaired", plan["repaired"]),
        ("warning", plan["warnings"]),
        ("breaks an invariant", plan.get("violations") or ()),
        ("problem", topology.get("problems") or ()),
    ):
        for sentence in sentences:
            yield f"{title}: {sentence}"
