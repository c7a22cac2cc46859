# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A finding for people and programs: its data, and the sentence that is made of them, only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.cpulist import compress, expand
from .codes import code_of
from .._base.findings import Finding, Value

if TYPE_CHECKING:
    from .._base.documents import Drift


def result_of(finding: Finding) -> Drift:
    """Return a finding as module ``binding_info`` returns it."""
    expected, found = texts_of(finding)
    code = code_of(finding.kind, finding.cause.word)
    device = finding.device
    return {
        "code": code,
        "kind": finding.kind,
        "object": finding.object,
        "expected": expected,
        "found": found,
        "cause": finding.cause.word,
        "remark": finding.cause.remark,
        "npu": device.id if device else None,
        "device": device.kind if device else None,
        "pci": device.pci or None if device else None,
        "unit": finding.unit,
        "expected_cpus": finding.expected.cpus,
        "found_cpus": _cpus_of(finding.found),
        "sentence": "%s: expected %s, found %s; likely %s: %s [%s]" % (finding.object, expected, found, *finding.cause, code),
    }


def texts_of(finding: Finding) -> tuple[str, str]:
    """Return what is expected and what was found, each as a short text."""
    if finding.kind == "cpus":
        wanted = finding.expected.cpus or ""
        offline = set(expand(wanted)) - set(expand(_cpus_of(finding.found) or ""))
        return "%s online" % wanted, "%s offline" % compress(offline)
    return _text(finding.kind, finding.expected), ", ".join(_text(finding.kind, value) for value in finding.found)


def _text(kind: str, value: Value) -> str:
    sets = [(word, cpus) for word, cpus in (("CPUs", value.cpus), ("memory nodes", value.mems)) if cpus is not None]
    if value.state:
        text = value.state
    elif kind == "cpusets":  # the object says which set it is
        text = sets[0][1] or "none"
    else:
        text = ", ".join("%s %s" % one for one in sets)
    text += " (IRQ %s)" % value.irqs if value.irqs else ""
    text += " of %s" % value.task if value.task else ""
    return text + (" and %d more" % value.more if value.more else "")


def _cpus_of(values: tuple[Value, ...]) -> str | None:
    known = [value.cpus for value in values if value.cpus is not None]
    return compress({cpu for cpus in known for cpu in expand(cpus)}) if known else None
