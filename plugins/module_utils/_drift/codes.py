# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings for people and programs: their data, the sentence that is made of them, and stable names for what a comparison finds.

As with Ceph's health codes, what has one name is muted, linked and counted together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base import findings
from .._base.cpulist import compress, expand
from .._base.findings import Code, Finding, Value
from .._features.register import FEATURES

if TYPE_CHECKING:
    from .._base.documents import Drift

WORK_OUTSIDE_POOL = "NPU_WORK_OUTSIDE_POOL"
PLAN_OUTDATED = "NPU_PLAN_OUTDATED"
_CODES = {
    "NPU_CARD_LOST": Code("An NPU of the plan in force is missing.", [findings.LOST_CARD], ["npus"]),
    "NPU_CARD_NEW": Code("An NPU has no CPUs in the plan in force.", [findings.NEW_CARD]),
    "NPU_CPU_OFFLINE": Code("A CPU of the plan is or was offline.", [findings.OFFLINE_CPU], ["cpus"]),
    "NPU_CPUSET_CHANGED": Code("The kernel grants a unit other CPUs or memory nodes than planned.", kinds=["cpusets"]),
    "NPU_FILE_CHANGED": Code("A managed file was changed, removed or added.", kinds=["files"]),
    "NPU_NEVER_BOUND": Code("The host has no plan in force.", [findings.NEVER_BOUND]),
    "NPU_NOT_RESTARTED": Code("A service or container still runs with its former settings.", [findings.OLD_PROCESS]),
    "NPU_PLAN_CHANGED": Code("The plan in force was edited or removed.", kinds=["plan"]),
    PLAN_OUTDATED: Code("A bind would change the plan in force."),
    "NPU_SERVICE_CHANGED": Code("A service or its processes do not run as planned.", kinds=["services", "processes"]),
    "NPU_SETTINGS_CHANGED": Code("A newer version bound the host, or settings do not match it.", [findings.CHANGED_SETTINGS]),
    "NPU_SMI_SILENT": Code("npu-smi or nvidia-smi does not answer.", [findings.UNREADABLE]),
    "NPU_UNIT_CHANGED": Code("A unit is not enabled, active or stopped as planned.", kinds=["units"]),
    "NPU_UNIT_FAILED": Code("The last run of a unit failed.", [findings.FAILED_UNIT]),
    WORK_OUTSIDE_POOL: Code("Processes use an NPU outside its pool, or with fewer CPUs than their role."),
}
_KINDS = ("plan", "npus", "cpus", "files", "units", "cpusets", "services", "processes")
_OF_FEATURES = {name: code for feature in FEATURES.values() for name, code in feature.codes.items()}
CODES = dict(sorted([*_CODES.items(), *_OF_FEATURES.items()]))
KINDS = (*_KINDS, *(kind for code in _OF_FEATURES.values() for kind in code.kinds))
"""What is compared."""
_OF_CAUSE = {cause: name for name, code in CODES.items() for cause in code.causes}
_OF_KIND = {kind: name for name, code in CODES.items() for kind in code.kinds}


def code_of(kind: str, cause: str) -> str:
    """Return the code of a finding: that of its cause where this alone tells what to do, else that of its kind."""
    return _OF_CAUSE.get(cause) or _OF_KIND[kind]


PAIRS = sorted({(cause, code_of(kind, cause)) for cause in findings.CAUSES for kind in KINDS})
"""Every likely cause with each code that it can have."""


def result_of(finding: Finding) -> Drift:
    """Return a finding as module ``binding_info`` returns it."""
    expected, actual = texts_of(finding)
    code = code_of(finding.kind, finding.cause.word)
    device = finding.device
    return {
        "code": code,
        "kind": finding.kind,
        "object": finding.object,
        "expected": expected,
        "found": actual,
        "cause": finding.cause.word,
        "remark": finding.cause.remark,
        "npu": device.id if device else None,
        "device": device.kind if device else None,
        "pci": device.pci or None if device else None,
        "unit": finding.unit,
        "expected_cpus": finding.expected.cpus,
        "found_cpus": _cpus_of(finding.found),
        "sentence": "%s: expected %s, found %s; likely %s: %s [%s]" % (finding.object, expected, actual, *finding.cause, code),
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
    cpulists = [value.cpus for value in values if value.cpus is not None]
    return compress({cpu for cpus in cpulists for cpu in expand(cpus)}) if cpulists else None
