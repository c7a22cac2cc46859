# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature slices: slices of NPUs and workloads, drop-ins of services, limiters of vNPUs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..._host.installed import UNIT_FOLDER
from ..._state.step import Check
from ..feature import Choices, Feature, later
from ..watching import WATCH_SERVICE

if TYPE_CHECKING:
    from typing import Container, ContextManager

    from ..._base.documents import AppliedState
    from ..._host.host import Host

HOUSEKEEPING = "/etc/npu-affinity/housekeeping.json"
"""What the system gets while no workload runs; there only where housekeeping follows the workloads."""
HOUSEKEEPING_UNITS = ("system.slice", "user.slice", "init.scope")


def _step(host: Host, state: AppliedState, choices: Choices) -> Check | None:
    has_units = state["live"].get("slices") and state.get("expected") or state.get("programs")
    return Check(later("slices.drift:require"), host, state) if has_units else None


def _meanwhile(host: Host, paths: Container[str], strict: bool) -> ContextManager[None]:
    lends = HOUSEKEEPING in paths or host.exists(HOUSEKEEPING)
    context: ContextManager[None] = later("slices.lending:nothing_lent")(host, paths, strict) if lends else contextlib.nullcontext()
    return context


_USER = {"name": str, "slice": str}

FEATURE = Feature(
    "slices",
    effect="gives workloads the CPUs and memory nodes of their NPUs",
    live={"services": [{"name": str, "settings": {str: str}}], "workloads": [dict(_USER, npus=[str])], "vnpus": [_USER]},
    owned=(
        *("%s/%s.slice" % (UNIT_FOLDER, name) for name in ("npu", "npu-*", "gpu", "gpu-*")),
        *("%s/*.%s.d/50-npu-affinity.conf" % (UNIT_FOLDER, kind) for kind in ("slice", "scope", "service")),
        UNIT_FOLDER + "/npu-affinity-limiter-*.service",
        "/etc/npu-affinity/vnpu/*.env",
        HOUSEKEEPING,
        UNIT_FOLDER + "/" + WATCH_SERVICE,
    ),
    shared={UNIT_FOLDER + "/" + WATCH_SERVICE: HOUSEKEEPING},
    programs=(WATCH_SERVICE,),
    step=_step,
    watch=later("slices.lending:Housekeeping"),
    meanwhile=_meanwhile,
    compare=later("slices.drift:compare"),
    compared=-2,
)
