# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature irq: interrupts, workqueues and kernel threads of NPU drivers, and irqbalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices
from ..value_feature import value_feature
from .places import (
    COUNTERS,
    IRQ_INSTANCE,
    IRQ_SERVICE,
    IRQ_TIMER,
    IRQBALANCE,
    IRQBALANCE_FILES,
    REBINDS,
    RULES,
    UNCHANGEABLE,
)

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._base.findings import Code
    from ..._host.host import Host
    from ..._state.values import Step
    from ..comparing import Comparing
    from .binding import Interrupts


def _kind() -> Interrupts:
    from .binding import Interrupts

    return Interrupts()


def _step(host: Host, state: AppliedState, choices: Choices) -> Step | None:
    failure, plan = state["live"].get("irq"), state["plan"]
    if not (failure and plan):
        return None
    from ..._state.values import Step
    from .binding import Interrupts

    return Step(host, Interrupts(tolerant=failure == "warn"), {"plan": plan})


def _compare(comparing: Comparing) -> None:
    from .drift import compare

    compare(comparing)


def _codes() -> dict[str, Code]:
    from ..._base import findings
    from ..._base.findings import Code

    return {
        "NPU_DRIVER_RELOADED": Code("The driver was loaded again and nothing has bound it since.", [findings.DRIVER_RELOAD]),
        "NPU_IRQBALANCE_ACTIVE": Code("irqbalance moves interrupts of NPUs.", [findings.IRQBALANCE]),
        "NPU_IRQ_FOUGHT_OVER": Code("Another program moves an interrupt each time the timer restores it.", [findings.FOUGHT_OVER]),
        "NPU_IRQ_MOVED": Code("An interrupt or workqueue is not on its planned CPUs.", kinds=["interrupts", "workqueues"]),
        "NPU_IRQ_STUCK": Code("An interrupt does not follow its list of CPUs.", [findings.KERNEL]),
        "NPU_THREAD_MOVED": Code("A thread is not on the CPUs of its role.", kinds=["threads"]),
        "NPU_WORKER_BINDS_ITSELF": Code("A process moves the interrupts of its NPU.", [findings.IN_PROCESS]),
    }


FEATURE = value_feature(
    "irq",
    {},
    "",
    kind=_kind,
    live=str,
    owned=IRQBALANCE_FILES
    + (
        UNIT_FOLDER + "/" + IRQ_SERVICE,
        UNIT_FOLDER + "/" + IRQ_INSTANCE,
        UNIT_FOLDER + "/" + IRQ_TIMER,
        RULES,
    ),
    sections={"irq": lambda recorded: _kind().check(recorded), IRQBALANCE: sections.check_unit},
    programs=("npu-affinity-irq*", "system-npu*affinity*irq*.slice"),
    leftovers=(UNCHANGEABLE, REBINDS, COUNTERS),
    restarted=((IRQBALANCE, IRQBALANCE_FILES),),
    step=_step,
    compare=_compare,
    compared=0,
    codes=_codes,
)
