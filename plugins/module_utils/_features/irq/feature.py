# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature irq: interrupts, workqueues and kernel threads of NPU drivers, and irqbalance."""

from __future__ import annotations

from ..._base import findings
from ..._base.findings import Code
from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import later, value_feature

UNCHANGEABLE = "/run/npu-affinity/unchangeable.json"
"""What the last bind could not place, ``{pci: {key: Step.to_remember()}}``, so a check, which never writes, does not call it drift."""
COUNTERS = "/run/npu-affinity/counters.json"
REBINDS = "/run/npu-affinity/rebinds.json"
"""``{pci: {key: {boot, times: [seconds since that boot]}}}`` of what was restored, ``{pci: {key: {since, count, who}}}`` of what is
left alone."""
RULES = "/etc/udev/rules.d/90-npu-affinity.rules"
IRQ_SERVICE, IRQ_INSTANCE, IRQ_TIMER = "npu-affinity-irq.service", "npu-affinity-irq@.service", "npu-affinity-irq.timer"
IRQBALANCE = "irqbalance.service"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
CONFINED_POLICY = "/usr/libexec/irqbalance/npu-affinity-policy"
"""Where our policy script lies, and where it does for an irqbalance that SELinux confines."""
IRQBALANCE_FILES = (
    "/etc/npu-affinity/irqbalance.env",
    UNIT_FOLDER + "/irqbalance.service.d/50-npu-affinity-irq.conf",
    POLICY,
    CONFINED_POLICY,
)

FEATURE = value_feature(
    "irq",
    effect="moves interrupts of NPUs to their pools",
    kind=later("irq.binding:Interrupts"),
    live=str,
    owned=(*IRQBALANCE_FILES, *("%s/%s" % (UNIT_FOLDER, name) for name in (IRQ_SERVICE, IRQ_INSTANCE, IRQ_TIMER)), RULES),
    sections={IRQBALANCE: sections.check_unit},
    programs=("npu-affinity-irq*", "system-npu*affinity*irq*.slice"),
    leftovers=(UNCHANGEABLE, REBINDS, COUNTERS),
    restarted=((IRQBALANCE, IRQBALANCE_FILES),),
    compare=later("irq.drift:compare"),
    compared=0,
    codes={
        "NPU_DRIVER_RELOADED": Code("The driver was loaded again and nothing has bound it since.", [findings.DRIVER_RELOAD]),
        "NPU_IRQBALANCE_ACTIVE": Code("irqbalance moves interrupts of NPUs.", [findings.IRQBALANCE]),
        "NPU_IRQ_FOUGHT_OVER": Code("Another program moves an interrupt each time the timer restores it.", [findings.FOUGHT_OVER]),
        "NPU_IRQ_MOVED": Code("An interrupt or workqueue is not on its planned CPUs.", kinds=["interrupts", "workqueues"]),
        "NPU_IRQ_STUCK": Code("An interrupt does not follow its list of CPUs.", [findings.KERNEL]),
        "NPU_THREAD_MOVED": Code("A thread is not on the CPUs of its role.", kinds=["threads"]),
        "NPU_WORKER_BINDS_ITSELF": Code("A process moves the interrupts of its NPU.", [findings.IN_PROCESS]),
    },
)
