# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stable names for what a comparison finds, as Ceph's health codes: what is muted, linked and counted under one name."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from . import findings

WORK_OUTSIDE_POOL = "NPU_WORK_OUTSIDE_POOL"
PLAN_OUTDATED = "NPU_PLAN_OUTDATED"


class Code(NamedTuple):
    """What findings of these ``causes`` have in common, of every kind, or else findings of these ``kinds``."""

    meaning: str
    causes: Sequence[str] = ()
    kinds: Sequence[str] = ()


CODES = {
    "NPU_CARD_LOST": Code("An NPU of the plan in force is missing.", [findings.LOST_CARD], ["npus"]),
    "NPU_CARD_NEW": Code("An NPU has no CPUs in the plan in force.", [findings.NEW_CARD]),
    "NPU_CPU_OFFLINE": Code("A CPU of the plan is or was offline.", [findings.OFFLINE_CPU], ["cpus"]),
    "NPU_CPUSET_CHANGED": Code("The kernel grants a unit other CPUs or memory nodes than planned.", kinds=["cpusets"]),
    "NPU_DEVICE_SHARE_CHANGED": Code("Device share of a chip is not as planned.", kinds=["device_share"]),
    "NPU_DRIVER_RELOADED": Code("The driver was loaded again and nothing has bound it since.", [findings.DRIVER_RELOAD]),
    "NPU_FILE_CHANGED": Code("A managed file was changed, removed or added.", kinds=["files"]),
    "NPU_HUGEPAGES_CHANGED": Code("A memory node has another number of huge pages than planned.", kinds=["hugepages"]),
    "NPU_HUGEPAGES_SHORT": Code("A memory node has no room for the planned huge pages.", [findings.SHORT_OF_MEMORY]),
    "NPU_IRQBALANCE_ACTIVE": Code("irqbalance moves interrupts of NPUs.", [findings.IRQBALANCE]),
    "NPU_IRQ_FOUGHT_OVER": Code("Another program moves an interrupt each time the timer restores it.", [findings.FOUGHT_OVER]),
    "NPU_IRQ_MOVED": Code("An interrupt or workqueue is not on its planned CPUs.", kinds=["interrupts", "workqueues"]),
    "NPU_IRQ_STUCK": Code("An interrupt does not follow its list of CPUs.", [findings.KERNEL]),
    "NPU_NEVER_BOUND": Code("The host has no plan in force.", [findings.NEVER_BOUND]),
    "NPU_NOT_RESTARTED": Code("A service or container still runs as it was started.", [findings.OLD_PROCESS]),
    "NPU_PLAN_CHANGED": Code("The plan in force was edited or removed.", kinds=["plan"]),
    PLAN_OUTDATED: Code("A bind would change the plan in force."),
    "NPU_SERVICE_CHANGED": Code("A service or its processes do not run as planned.", kinds=["services", "processes"]),
    "NPU_SETTINGS_CHANGED": Code("A newer version bound the host, or settings do not match its cards.", [findings.CHANGED_SETTINGS]),
    "NPU_SMI_SILENT": Code("npu-smi does not answer.", [findings.UNREADABLE]),
    "NPU_THREAD_MOVED": Code("A thread is not on the CPUs of its role.", kinds=["threads"]),
    "NPU_TUNING_CHANGED": Code("A host setting is not as planned.", kinds=["tuning"]),
    "NPU_UNIT_CHANGED": Code("A unit is not enabled, active or stopped as planned.", kinds=["units"]),
    "NPU_UNIT_FAILED": Code("The last run of a unit failed.", [findings.FAILED_UNIT]),
    "NPU_WORKER_BINDS_ITSELF": Code("A process moves the interrupts of its NPU.", [findings.IN_PROCESS]),
    WORK_OUTSIDE_POOL: Code("Processes use an NPU outside its pool."),
}
"""Every code, in alphabetical order."""
_OF_CAUSE = {cause: name for name, code in CODES.items() for cause in code.causes}
_OF_KIND = {kind: name for name, code in CODES.items() for kind in code.kinds}


def code_of(kind: str, cause: str) -> str:
    """Return the code of a finding: that of its cause where this alone tells what to do, else that of its kind."""
    return _OF_CAUSE.get(cause) or _OF_KIND[kind]


PAIRS = sorted({(cause, code_of(kind, cause)) for cause in findings.CAUSES for kind in findings.KINDS})
"""Every likely cause with each code that it can have."""
