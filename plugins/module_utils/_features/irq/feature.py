# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature irq: interrupts, workqueues and kernel threads of NPU drivers, and irqbalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices, Feature
from .places import (
    COUNTERS,
    IRQ_INSTANCE,
    IRQ_SERVICE,
    IRQ_TIMER,
    IRQBALANCE,
    IRQBALANCE_FILES,
    REBINDS,
    RULES,
    SECTION,
    UNCHANGEABLE,
)

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._base.findings import Code
    from ..._host.host import Host
    from ..._state.release import Release
    from ..comparing import Comparing
    from .step import Interrupts


def _step(host: Host, state: AppliedState, choices: Choices) -> Interrupts | None:
    if not (state["live"].get("irq") and state["plan"]):
        return None
    from .step import Interrupts

    return Interrupts(host, state["plan"], state["live"]["irq"] == "warn")


def _release() -> type[Release]:
    from .release import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .binding import main

    return main(argv)


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


def _check(data: dict[str, Any]) -> None:
    from ..._base.cpulist import expand

    for member in [data["functions"], data["workqueues"], data["threads"], *data["functions"].values()]:
        if not isinstance(member, dict):
            raise ValueError("it has no affinities by name")
    for member in [data["workqueues"], data["threads"], *data["functions"].values()]:
        for name, cpus in member.items():
            if not isinstance(cpus, (str, type(None))):
                raise ValueError("%s was on %r" % (name, cpus))
            expand(cpus or "", name)


FEATURE = Feature(
    "irq",
    live=str,
    owned=IRQBALANCE_FILES
    + (
        UNIT_FOLDER + "/" + IRQ_SERVICE,
        UNIT_FOLDER + "/" + IRQ_INSTANCE,
        UNIT_FOLDER + "/" + IRQ_TIMER,
        RULES,
    ),
    sections={SECTION: _check, IRQBALANCE: sections.check_unit},
    programs=("npu-affinity-irq*", "system-npu*affinity*irq*.slice"),
    leftovers=(UNCHANGEABLE, REBINDS, COUNTERS),
    restarted=((IRQBALANCE, IRQBALANCE_FILES),),
    step=_step,
    release=_release,
    program=_program,
    compare=_compare,
    codes=_codes,
)
