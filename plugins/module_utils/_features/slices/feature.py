# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature slices: slices of NPUs and workloads, drop-ins of services, limiters of vNPUs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..._host.installed import UNIT_FOLDER
from ..feature import Choices, Feature
from ..watching import WATCH_SERVICE
from .places import HOUSEKEEPING

if TYPE_CHECKING:
    from typing import Container, ContextManager

    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from ..comparing import Comparing
    from ..watching import Watching
    from .step import Prerequisites


def _step(host: Host, state: AppliedState, choices: Choices) -> Prerequisites | None:
    if not (state["live"].get("slices") and state.get("expected") or state.get("programs")):
        return None
    from .step import Prerequisites

    return Prerequisites(host, state)


def _watch(host: Host) -> Watching:
    from .watching import Housekeeping

    return Housekeeping(host)


def _meanwhile(host: Host, paths: Container[str], strict: bool) -> ContextManager[None]:
    if HOUSEKEEPING not in paths and not host.exists(HOUSEKEEPING):
        return contextlib.nullcontext()
    from .lending import nothing_lent

    return nothing_lent(host, paths, strict)


def _compare(comparing: Comparing) -> None:
    from .drift import compare

    compare(comparing)


_USER = {"name": str, "slice": str}

FEATURE = Feature(
    "slices",
    live={"services": [{"name": str, "settings": {str: str}}], "workloads": [dict(_USER, npus=[str])], "vnpus": [_USER]},
    owned=(
        UNIT_FOLDER + "/npu.slice",
        UNIT_FOLDER + "/npu-*.slice",
        UNIT_FOLDER + "/gpu.slice",
        UNIT_FOLDER + "/gpu-*.slice",
        UNIT_FOLDER + "/*.slice.d/50-npu-affinity.conf",
        UNIT_FOLDER + "/*.scope.d/50-npu-affinity.conf",
        UNIT_FOLDER + "/*.service.d/50-npu-affinity.conf",
        UNIT_FOLDER + "/npu-affinity-limiter-*.service",
        "/etc/npu-affinity/vnpu/*.env",
        HOUSEKEEPING,
        UNIT_FOLDER + "/" + WATCH_SERVICE,
    ),
    shared={UNIT_FOLDER + "/" + WATCH_SERVICE: HOUSEKEEPING},
    programs=(WATCH_SERVICE,),
    step=_step,
    watch=_watch,
    meanwhile=_meanwhile,
    compare=_compare,
    compared=-2,
)
