# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature nic: interrupts of network queues on CPUs that are near the function and in no pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices
from ..irq.places import IRQBALANCE
from ..value_feature import value_feature
from .places import FILE, NIC_INSTANCE, NIC_SERVICE, NIC_TIMER, RULES

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..._state.values import Step
    from ..comparing import Comparing
    from .queues import Queues


def _kind() -> Queues:
    from .queues import Queues

    return Queues()


def _step(host: Host, state: AppliedState, choices: Choices) -> Step | None:
    wanted: Any = state["live"].get("nic")
    if wanted is None:
        return None
    from ..._state.values import Step
    from .queues import Queues

    return Step(host, Queues(tolerant=state["live"].get("irq") == "warn"), wanted)


def _compare(comparing: Comparing) -> None:
    wanted = comparing.wanted.live.get("nic")
    if wanted:
        from .drift import compare

        compare(comparing, wanted)


FEATURE = value_feature(
    "nic",
    {},
    "",
    kind=_kind,
    live={"mode": str, "functions": {str: str}},
    owned=(FILE, RULES) + tuple("%s/%s" % (UNIT_FOLDER, name) for name in (NIC_SERVICE, NIC_INSTANCE, NIC_TIMER)),
    programs=("npu-affinity-nic*", "system-npu*affinity*nic*.slice"),
    restarted=((IRQBALANCE, (FILE,)),),
    step=_step,
    compare=_compare,
    compared=0,
    codes=None,
)
