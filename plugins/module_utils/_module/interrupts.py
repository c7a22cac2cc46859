# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts bound as a task of a play: looked at first, so that nothing is recorded or written where nothing differs.

Other steps of a task can stand between :func:`look` and :func:`bind`.
"""

from __future__ import annotations

from typing import Any, Mapping

from .._host import Host
from .._features.irq import binding
from .._features.irq.affinity import Report, grouped
from .._kernel.interrupts import KINDS
from .._features.irq.rebinds import forget
from .._state import previous
from .._diffs import diffs


class Unbound(ValueError):
    """Something should have been bound and was not; ``result`` is what :func:`bind` would have returned."""

    def __init__(self, result: dict[str, Any]) -> None:
        ValueError.__init__(self, "not everything could be bound: " + "; ".join(result["failures"]))
        self.result = result


def look(host: Host, plan: Mapping[str, Any], check: bool = False) -> tuple[Report, dict[str, Any]]:
    """Return ``(what _irq.bind would do about the interrupts of a plan, the section of previous.json that this needs before)``."""
    report = binding.bind(host, plan, check=True)
    return report, {binding.SECTION: binding.previous(host, plan)} if report.changed and not check else {}


def bind(
    host: Host, plan: Mapping[str, Any], looked: tuple[Report, dict[str, Any]], check: bool = False, tolerant: bool = False
) -> tuple[bool, dict[str, Any], list[str], list[str]]:
    """Bind the interrupts of a plan, given what :func:`look` returned, and return ``(changed, result, warnings, lines)``, the last for the
    diff.

    ``result`` is ``{npus, unchangeable, failures}`` as module ``irq_affinity`` documents it. Raises ``OSError``, ``ValueError`` or its kind
    :class:`Unbound`; with ``tolerant`` what could not be bound is a warning instead.
    """
    report, sections = looked
    for section, state in sections.items():
        previous.record(host, section, state)
    if not check:
        forget(host)
    if (report.changed or report.unchangeable or report.failed) and not check:
        report = binding.bind(host, plan, tolerant=tolerant)
    result = {
        "npus": [dict(npu, **{kind: grouped(npu[kind]) for kind in KINDS}) for npu in report.npus],
        "unchangeable": report.unchangeable,
        "failures": report.failed,
    }
    if report.failed and not tolerant:
        raise Unbound(dict(result, changed=report.changed))
    return report.changed, result, report.warnings + report.failed, diffs.affinities(report.npus)
