# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts bound as a task of a play: looked at first, so that nothing is recorded or written where nothing differs.

This module is private to the collection.
"""

from __future__ import annotations

from . import _diffs, _irq, _previous
from ._affinity import KINDS, grouped


class Unbound(ValueError):
    """Something should have been bound and was not; ``result`` is what :func:`bind` would have returned."""

    def __init__(self, result):
        ValueError.__init__(self, "not everything could be bound: " + "; ".join(result["failures"]))
        self.result = result


def bind(host, plan, wait=0, check=False):
    """Bind the interrupts of a plan and return ``(changed, result, warnings, diff)``.

    ``result`` is ``{npus, unchangeable, failures}`` as module ``irq_affinity`` documents it. Raises ``OSError``, ``ValueError`` or its kind
    :class:`Unbound`.
    """
    if wait:
        _irq.await_vectors(host, plan, wait)
    report = _irq.bind(host, plan, check=True)
    if report["changed"] and not check:
        _previous.record(host, _irq.SECTION, _irq.previous(host, plan))
    if (report["changed"] or report["unchangeable"]) and not check:
        report = _irq.bind(host, plan)
    result = {
        "npus": [dict(npu, **{kind: grouped(npu[kind]) for kind in KINDS}) for npu in report["npus"]],
        "unchangeable": report["unchangeable"],
        "failures": report["failed"],
    }
    diff = _diffs.of_affinities(report["npus"])
    if report["failed"]:
        raise Unbound(dict(result, changed=report["changed"], diff=diff))
    return report["changed"], result, report["warnings"], diff
