# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature metrics: the file that node exporter reads, and the timer that writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Choices, Feature
from .places import METRICS_SERVICE, METRICS_TIMER, SECTION, SETTINGS

if TYPE_CHECKING:
    from ..._base.documents import AppliedState
    from ..._host.host import Host
    from .textfile import Place


def _step(host: Host, state: AppliedState, choices: Choices) -> Place | None:
    wanted = state["live"].get("metrics")
    if wanted is None:
        return None
    from .textfile import Place

    return Place(host, wanted)


def _written(host: Host, recorded: Mapping[str, Any]) -> list[str]:
    if SECTION not in recorded:
        return []
    from .textfile import written

    return written(host, recorded)


FEATURE = Feature(
    "metrics",
    live=str,
    owned=(
        SETTINGS,
        UNIT_FOLDER + "/" + METRICS_SERVICE,
        UNIT_FOLDER + "/" + METRICS_TIMER,
    ),
    sections={SECTION: sections.check_paths},
    programs=("npu-affinity-metrics*",),
    step=_step,
    written=_written,
)
