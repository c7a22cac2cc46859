# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stable names for what a comparison finds, as Ceph's health codes: what is muted, linked and counted under one name."""

from __future__ import annotations

from .._base import findings
from .._base.findings import Code
from .._features.register import FEATURES

WORK_OUTSIDE_POOL = "NPU_WORK_OUTSIDE_POOL"
PLAN_OUTDATED = "NPU_PLAN_OUTDATED"
_CODES = {
    "NPU_CARD_LOST": Code("An NPU of the plan in force is missing.", [findings.LOST_CARD], ["npus"]),
    "NPU_CARD_NEW": Code("An NPU has no CPUs in the plan in force.", [findings.NEW_CARD]),
    "NPU_CPU_OFFLINE": Code("A CPU of the plan is or was offline.", [findings.OFFLINE_CPU], ["cpus"]),
    "NPU_CPUSET_CHANGED": Code("The kernel grants a unit other CPUs or memory nodes than planned.", kinds=["cpusets"]),
    "NPU_FILE_CHANGED": Code("A managed file was changed, removed or added.", kinds=["files"]),
    "NPU_NEVER_BOUND": Code("The host has no plan in force.", [findings.NEVER_BOUND]),
    "NPU_NOT_RESTARTED": Code("A service or container still runs as it was started.", [findings.OLD_PROCESS]),
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
_OF_FEATURES = {name: code for feature in FEATURES.values() if feature.codes for name, code in feature.codes().items()}
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
