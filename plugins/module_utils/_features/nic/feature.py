# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature nic: interrupts of network queues on CPUs that are near the function and in no pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices, Feature
from .places import ADDRESS, FILE, NIC_INSTANCE, NIC_SERVICE, NIC_TIMER, RULES, SECTION
from ..irq.places import IRQBALANCE

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.release import Release
    from ..._state.step import LiveStep
    from ..comparing import Comparing


def _step(host: Host, state: AppliedState, choices: Choices) -> LiveStep | None:
    wanted = state["live"].get("nic")
    if wanted is None:
        return None
    from .step import NetworkInterrupts

    return NetworkInterrupts(host, wanted, state["live"].get("irq") == "warn")


def _release() -> type[Release]:
    from .release import Release

    return Release


def _program(argv: Sequence[str]) -> int:
    from .program import main

    return main(argv)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("nic")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


def _check(data: dict[str, Any]) -> None:
    from ..._base.cpulist import expand

    for pci, entries in data["functions"].items():
        if not ADDRESS.match(pci):
            raise ValueError("%r is not a PCI function" % pci)
        for name, cpus in entries.items():
            if not isinstance(cpus, str):
                raise ValueError("%s was on %r" % (name, cpus))
            expand(cpus, name)


FEATURE = Feature(
    "nic",
    live={"mode": str, "functions": {str: str}},
    owned=(FILE, RULES) + tuple("%s/%s" % (UNIT_FOLDER, name) for name in (NIC_SERVICE, NIC_INSTANCE, NIC_TIMER)),
    sections={SECTION: _check},
    programs=("npu-affinity-nic*", "system-npu*affinity*nic*.slice"),
    restarted=((IRQBALANCE, (FILE,)),),
    step=_step,
    release=_release,
    program=_program,
    compare=_compare,
)
